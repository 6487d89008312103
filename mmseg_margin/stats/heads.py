"""What the segmentation heads expect of the labels, against the data set."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from torch import nn

from mmseg_margin.walks import (
    heads_of_config,
    heads_of_model,
    modules,
    nodes,
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


def tolerates_absent_classes(model: nn.Module | Mapping[str, Any]) -> bool:
    """Whether a margin loss of it was told what to do with such classes."""
    if isinstance(model, nn.Module):
        settings = (
            getattr(x, 'offset_settings', None) for _, x in modules(model)
        )
        return any(x and x.absent_class != 'error' for x in settings)
    return any(x.get('absent_class', 'error') != 'error' for x in nodes(model))


def check_heads(heads: Sequence[Head], num_classes: int) -> Iterable[str]:
    """A sentence for each head of another size, and if they disagree."""
    for head in heads:
        if head.num_classes != num_classes:
            yield (
                f'{head.name} has num_classes={head.num_classes}, the data '
                f'set has {num_classes} classes\n    likely fix: set '
                f'num_classes={num_classes} in {head.name}.'
            )
    if len({head.ignore_index for head in heads}) > 1:
        listing = ', '.join(f'{x.name}: {x.ignore_index}' for x in heads)
        yield (
            f'the heads differ in ignore_index ({listing})\n    likely fix: '
            'give all heads the same ignore_index.'
        )


def check_ignored_labels(
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
