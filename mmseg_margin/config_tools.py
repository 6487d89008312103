"""Helpers that read and edit mmengine configs, and select images."""

from collections.abc import Iterator, Mapping
from typing import Any

from mmengine.config import Config, ConfigDict


def registered_name(node: Mapping[str, Any]) -> str:
    """The name of a config's ``type``, which is a string or a class."""
    kind = node['type']
    name = kind if isinstance(kind, str) else kind.__name__
    return name.rpartition('.')[2]


def nodes(value: Any) -> Iterator[ConfigDict]:
    """All dicts of a config, outer ones first."""
    if isinstance(value, dict):
        yield value
        value = list(value.values())
    for item in value if isinstance(value, (list, tuple)) else ():
        yield from nodes(item)


def as_list(value: Any) -> list:
    """A setting that may be None, one value or several, as a list."""
    if value is None:
        return []
    return list(value) if isinstance(value, (list, tuple)) else [value]


def value_of(node: Any, name: str, default: Any = None) -> Any:
    """A setting of a config, or the attribute of an object built from it."""
    if isinstance(node, Mapping):
        return node.get(name, default)
    return getattr(node, name, default)


def leaf_datasets(dataset: Any) -> list[Any]:
    """The data sets inside all wrappers, built or as configs."""
    inner = value_of(dataset, 'datasets')
    inner = inner or as_list(value_of(dataset, 'dataset'))
    if not inner:
        return [] if dataset is None else [dataset]
    return [leaf for part in inner for leaf in leaf_datasets(part)]


def evenly_spaced(total: int, count: int | None = None) -> list[int]:
    """``count`` indices from 0 to ``total - 1``, or all of them.

    Example:
        >>> evenly_spaced(9, 3)
        [0, 4, 8]
    """
    count = total if count is None else min(count, total)
    return [round(i * (total - 1) / max(count - 1, 1)) for i in range(count)]


def add_hook(cfg: Config, name: str, **settings: Any) -> None:
    """Append a hook of ours, or update the settings of an existing one."""
    add_import(cfg, 'mmseg_margin')
    hooks = as_list(cfg.get('custom_hooks'))
    for hook in hooks:
        if registered_name(hook) == name:
            hook.update(settings)
            return
    cfg.custom_hooks = [*hooks, ConfigDict(type=name, **settings)]


def add_import(cfg: Config, module: str) -> None:
    """Add a module to the config's ``custom_imports``."""
    imports = as_list((cfg.get('custom_imports') or {}).get('imports'))
    cfg.custom_imports = ConfigDict(
        imports=list(dict.fromkeys([*imports, module])),
        allow_failed_imports=False,
    )
