"""Finds and classifies the heads of a model or of a model's config."""

from collections.abc import Iterator, Mapping
from typing import Any

from mmengine.config import ConfigDict
from mmengine.model import is_model_wrapper
from mmseg.models.decode_heads import STDCHead
from mmseg.models.decode_heads.decode_head import BaseDecodeHead
from mmseg.registry import MODELS
from torch import nn

from .config_tools import as_list

HEADS = ('decode_head', 'auxiliary_head')
# Attributes in which DDP, torch.compile and FSDP keep the wrapped model.
WRAPPERS = ('module', '_orig_mod', '_fsdp_wrapped_module')


def heads_of_config(model: Mapping[str, Any]) -> dict[str, ConfigDict]:
    """Decode, auxiliary and cascade heads of a model config, by name."""
    heads: dict[str, ConfigDict] = {}
    for key in HEADS:
        entry = model.get(key)
        several = isinstance(entry, (list, tuple))
        for place, head in enumerate(as_list(entry)):
            name = f'{key}.{place}' if several else key
            heads[name] = head
            # K-Net computes the losses of all its stages in this inner head.
            inner = head.get('kernel_generate_head')
            if inner is not None:
                heads[f'{name}.kernel_generate_head'] = inner
    return heads


def heads_of_model(model: nn.Module) -> dict[str, BaseDecodeHead]:
    """The heads of a built model, wrapped or not, under the same names."""
    return {
        name: module
        for name, module in modules(model)
        if isinstance(module, BaseDecodeHead)
    }


def head_type(head: Any) -> type | None:
    """The class of a head, built or config; None if it is not registered."""
    if not isinstance(head, Mapping):
        return type(head)
    kind = head['type']
    return MODELS.get(kind) if isinstance(kind, str) else kind


def is_a(head: Any, kind: type) -> bool:
    """Whether a head, built or config, is an instance of a class."""
    found = head_type(head)
    return isinstance(found, type) and issubclass(found, kind)


def predicts_boundaries(head: Any) -> bool:
    """Whether a head predicts class boundaries instead of classes."""
    return is_a(head, STDCHead)


def bare_model(model: nn.Module) -> Any:
    """The segmentor without the wrapper of distributed training."""
    return model.module if is_model_wrapper(model) else model


def modules(model: nn.Module) -> Iterator[tuple[str, Any]]:
    """All modules, with the wrappers left out of their names."""
    for name, module in model.named_modules():
        parts = (part for part in name.split('.') if part not in WRAPPERS)
        yield '.'.join(parts), module
