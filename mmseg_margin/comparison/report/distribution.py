"""Class shares and the margins that follow from them."""

from pathlib import Path

from mmseg_margin.stats import ClassStats, plot_stats
from mmseg_margin.stats.table import margin_columns

from .comparison import Comparison
from .document import Block, Picture, Section, Table
from .text import ABSENT

DEFAULTS = {'tau': 10.0, 'upsilon': 1.0}


def distribution_section(comparison: Comparison, folder: Path) -> Section:
    """A table, and a picture where there are margins to draw."""
    study = comparison.study
    names, losses = [*comparison.margin_losses], comparison.margin_losses
    loss = losses[names[0]] if names else {}
    tau, upsilon = (
        loss.get(key, default) for key, default in DEFAULTS.items()
    )
    stats = ClassStats(
        study.classes,
        study.class_counts,
        [0] * len(study.classes),
        study.class_counts,
    )
    margins = [
        [ABSENT if text == '-' else text for text in pair]
        for pair in margin_columns(stats, tau, upsilon)
    ]
    whose = f'of {names[0]}' if names else 'for the default parameters'
    blocks: list[Block] = [
        Table(
            f'Labelled pixels of the training set, and the margin-offsets '
            f'{whose} (tau = {tau:g}, upsilon = {upsilon:g}). A class that '
            'is absent has none.',
            ['class', 'pixels', 'share %', 'rho_0k', 'rho_k0'],
            [
                [
                    study.classes[k],
                    f'{study.class_counts[k]:,}',
                    f'{100 * study.class_counts[k] / max(stats.total, 1):.4f}',
                    *margins[k],
                ]
                for k in comparison.class_order
            ],
        )
    ]
    if any(rho_0k != ABSENT for rho_0k, _ in margins):
        picture = folder / 'classes.png'
        plot_stats(stats, picture, tau, upsilon)
        caption = 'Shares and margin-offsets, most frequent class on top.'
        blocks.append(Picture(caption, picture, wide=True))
    return Section('Classes and margins', blocks)
