"""Walks through configs, data sets and models: the only ones there are."""

from collections.abc import Iterator, Mapping
from typing import Any

from mmengine.config import Config, ConfigDict
from mmseg.models.decode_heads import STDCHead
from mmseg.models.decode_heads.decode_head import BaseDecodeHead
from mmseg.registry import MODELS
from torch import nn

HEADS = ('decode_head', 'auxiliary_head')
# DDP, torch.compile and FSDP put the model into an attribute of theirs.
WRAPPERS = ('module', '_orig_mod', '_fsdp_wrapped_module')


def registered_name(node: Mapping[str, Any]) -> str:
    """Name of a config's ``type``, which is a string or a class."""
    kind = node['type']
    name = kind if isinstance(kind, str) else kind.__name__
    return name.rpartition('.')[2]


def nodes(value: Any) -> Iterator[ConfigDict]:
    """All dicts of a config, the outer ones first."""
    if isinstance(value, dict):
        yield value
        value = list(value.values())
    for item in value if isinstance(value, (list, tuple)) else ():
        yield from nodes(item)


def as_list(value: Any) -> list:
    """What stands in a config as nothing, as one, or as a list of several."""
    if value is None:
        return []
    return list(value) if isinstance(value, (list, tuple)) else [value]


def value_of(node: Any, name: str, default: Any = None) -> Any:
    """A setting of a config or an attribute of what was built from it."""
    if isinstance(node, Mapping):
        return node.get(name, default)
    return getattr(node, name, default)


def leaf_datasets(dataset: Any) -> list[Any]:
    """The data sets inside all wrappers, be they built or configs."""
    inner = value_of(dataset, 'datasets')
    inner = inner or as_list(value_of(dataset, 'dataset'))
    if not inner:
        return [] if dataset is None else [dataset]
    return [leaf for part in inner for leaf in leaf_datasets(part)]


def add_hook(cfg: Config, name: str, **settings: Any) -> None:
    """Append a hook of ours, or give new settings to the one there is."""
    add_import(cfg, 'mmseg_margin')
    hooks = as_list(cfg.get('custom_hooks'))
    for hook in hooks:
        if registered_name(hook) == name:
            hook.update(settings)
            return
    cfg.custom_hooks = [*hooks, ConfigDict(type=name, **settings)]


def add_import(cfg: Config, module: str) -> None:
    """Let a config import a module wherever it is read."""
    imports = as_list((cfg.get('custom_imports') or {}).get('imports'))
    cfg.custom_imports = ConfigDict(
        imports=list(dict.fromkeys([*imports, module])),
        allow_failed_imports=False,
    )


def heads_of_config(model: Mapping[str, Any]) -> dict[str, ConfigDict]:
    """Decode, auxiliary and cascade heads of a model config, by name."""
    heads: dict[str, ConfigDict] = {}
    for key in HEADS:
        entry = model.get(key)
        several = isinstance(entry, (list, tuple))
        for place, head in enumerate(as_list(entry)):
            name = f'{key}.{place}' if several else key
            heads[name] = head
            # K-Net's head scores and trains all its stages through this one.
            inner = head.get('kernel_generate_head')
            if inner is not None:
                heads[f'{name}.kernel_generate_head'] = inner
    return heads


def heads_of_model(model: nn.Module) -> dict[str, BaseDecodeHead]:
    """The same of a model, under any wrapper."""
    return {
        name: module
        for name, module in modules(model)
        if isinstance(module, BaseDecodeHead)
    }


def head_type(head: Any) -> type | None:
    """The class of a head, built or config; None if nobody registered it."""
    if not isinstance(head, Mapping):
        return type(head)
    kind = head['type']
    return MODELS.get(kind) if isinstance(kind, str) else kind


def is_a(head: Any, kind: type) -> bool:
    """Whether a head, built or config, is one of a kind."""
    found = head_type(head)
    return isinstance(found, type) and issubclass(found, kind)


def predicts_boundaries(head: Any) -> bool:
    """Whether a head learns where classes meet, in two classes of its own."""
    return is_a(head, STDCHead)


def modules(model: nn.Module) -> Iterator[tuple[str, Any]]:
    """All modules, under the names they have without wrappers."""
    for name, module in model.named_modules():
        parts = (part for part in name.split('.') if part not in WRAPPERS)
        yield '.'.join(parts), module


def evenly_spaced(total: int, count: int | None = None) -> list[int]:
    """``count`` indices from 0 to ``total - 1``, or all of them.

    Example:
        >>> evenly_spaced(9, 3)
        [0, 4, 8]
    """
    count = total if count is None else min(count, total)
    return [round(i * (total - 1) / max(count - 1, 1)) for i in range(count)]
