"""What the segmentation heads expect of the labels, against the data set."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from mmseg.models.decode_heads.decode_head import BaseDecodeHead
from torch import nn

from .samples import leaf_datasets


class Head(NamedTuple):
    """The settings of a head that concern labels."""

    name: str
    num_classes: int
    ignore_index: int | None


def heads_of_model(model: nn.Module) -> list[Head]:
    """Decode, auxiliary and cascade heads, under any wrapper."""
    return [
        Head(name, module.num_classes, module.ignore_index)
        for name, module in model.named_modules()
        if isinstance(module, BaseDecodeHead)
    ]


def heads_of_config(model_cfg: Mapping[str, Any]) -> list[Head]:
    """The same from a model config, without building the model."""
    heads = []
    for name in ('decode_head', 'auxiliary_head'):
        entry = model_cfg.get(name) or []
        for cfg in [entry] if isinstance(entry, Mapping) else entry:
            if 'num_classes' in cfg:
                ignore_index = cfg.get('ignore_index', 255)
                heads.append(Head(name, cfg['num_classes'], ignore_index))
    return heads


def ignore_index_of(heads: Sequence[Head], dataset: Any) -> int | None:
    """The index that the loss ignores: the head's, else the data set's."""
    if heads and heads[0].ignore_index is not None:
        return heads[0].ignore_index
    return getattr(leaf_datasets(dataset)[0], 'ignore_index', 255)


def check_num_classes(
    heads: Iterable[Head], num_classes: int
) -> Iterable[str]:
    """A sentence for each head with another number of classes."""
    for head in heads:
        if head.num_classes != num_classes:
            yield (
                f'{head.name} has num_classes={head.num_classes}, the data '
                f'set has {num_classes} classes\n    likely fix: set '
                f'num_classes={num_classes} in {head.name}.'
            )


def check_heads_agree(heads: Iterable[Head]) -> Iterable[str]:
    """A sentence if the heads ignore different labels."""
    ignored = {x.name: x.ignore_index for x in heads}
    if len(set(ignored.values())) > 1:
        listing = ', '.join(f'{k}: {v}' for k, v in ignored.items())
        yield (
            f'the heads differ in ignore_index ({listing})\n    likely fix: '
            'give all heads the same ignore_index.'
        )


def check_datasets_agree(
    heads: Sequence[Head], leaves: Iterable[Any]
) -> Iterable[str]:
    """A sentence if heads and data sets ignore different labels."""
    declared = {getattr(leaf, 'ignore_index', 255) for leaf in leaves}
    ignored = {x.ignore_index for x in heads if x.ignore_index is not None}
    if ignored and declared != ignored:
        yield (
            f'the heads ignore label {_join(ignored)}, the data set declares '
            f'ignore_index={_join(declared)}; padding and rotation write 255 '
            'unless told otherwise\n    likely fix: use one value in head, '
            'data set and every seg_pad_val.'
        )


def _join(values: Iterable[int]) -> str:
    return ', '.join(str(value) for value in sorted(values))
