"""What the segmentation heads expect of the labels, against the data set."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from torch import nn

from mmseg_margin.walks import (
    heads_of_config,
    heads_of_model,
    leaf_datasets,
    predicts_boundaries,
)


class Head(NamedTuple):
    """The settings of a head that concern labels."""

    name: str
    num_classes: int
    ignore_index: int | None


def label_heads(model: nn.Module | Mapping[str, Any]) -> list[Head]:
    """The heads that learn the data set's classes, of a model or its config.

    Heads that derive labels of their own, such as boundaries, are left out.
    """
    if isinstance(model, nn.Module):
        return [
            Head(name, head.num_classes, head.ignore_index)
            for name, head in heads_of_model(model).items()
            if not predicts_boundaries(head)
        ]
    return [
        Head(name, head['num_classes'], head.get('ignore_index', 255))
        for name, head in heads_of_config(model).items()
        if 'num_classes' in head and not predicts_boundaries(head)
    ]


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
