"""Finds and classifies the heads of a model or of a model's config."""

from collections.abc import Iterator, Mapping
from typing import Any

from mmengine.model import is_model_wrapper
from mmseg.models.decode_heads import STDCHead
from mmseg.models.decode_heads.decode_head import BaseDecodeHead
from torch import nn

from .config_tools import as_list, registered_name

HEADS = ('decode_head', 'auxiliary_head')
# Attributes in which DDP, torch.compile and FSDP keep the wrapped model.
WRAPPERS = ('module', '_orig_mod', '_fsdp_wrapped_module')


def heads_of_config(model: Mapping[str, Any]) -> dict[str, Any]:
    """Decode, auxiliary and cascade heads of a model config, by name."""
    heads = {}
    for key in HEADS:
        several = isinstance(model.get(key), (list, tuple))
        for place, head in enumerate(as_list(model.get(key))):
            heads[f'{key}.{place}' if several else key] = head
    return heads


def heads_of_model(model: nn.Module) -> dict[str, BaseDecodeHead]:
    """The heads of a built model, wrapped or not, under the same names."""
    found = modules(model)
    return {name: x for name, x in found if isinstance(x, BaseDecodeHead)}


def predicts_boundaries(head: Any) -> bool:
    """Whether a head, built or config, predicts boundaries, not classes."""
    if isinstance(head, Mapping):
        return registered_name(head) == 'STDCHead'
    return isinstance(head, STDCHead)


def bare_model(model: nn.Module) -> Any:
    """The segmentor without the wrapper of distributed training."""
    return model.module if is_model_wrapper(model) else model


def modules(model: nn.Module) -> Iterator[tuple[str, Any]]:
    """All modules, with the wrappers left out of their names."""
    for name, module in model.named_modules():
        parts = (part for part in name.split('.') if part not in WRAPPERS)
        yield '.'.join(parts), module
