"""Algorithm 1 and Theorem 1: everything that follows from the class counts.

``N_k`` is the number of labelled pixels of class k in the training set, each
annotation file counted once at its stored resolution, and ``N = sum_k N_k``.
The offsets are not scale-invariant: doubling every count scales ``rho_0k`` by
``1/sqrt(2)``, so what is counted is part of the method.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mmseg_margin.errors import (
    NOT_NEGATIVE,
    POSITIVE,
    SettingError,
    one_of,
    printable,
    require,
)

Array = NDArray[np.float64]
ABSENT_CLASS_POLICIES = ('error', 'zero', 'max')
# Scores seldom differ by more; the paper's offsets on Cityscapes are below 1.
LARGE_OFFSET = 30.0


class MarginOffsets(NamedTuple):
    """Offsets of the background (``rho_0k``) and foreground (``rho_k0``)."""

    rho_0k: Array
    rho_k0: Array


def margin_offsets(
    class_counts: ArrayLike,
    tau: float = 10.0,
    upsilon: float = 1.0,
    absent_class: str = 'error',
    class_names: Sequence[str] | None = None,
) -> MarginOffsets:
    """Algorithm 1: the margin-offsets of K classes.

    Args:
        class_counts: ``N_k``, shape (K,).
        tau: Scale of ``rho_0k``; 0 for no offsets.
        upsilon: Scale of the ratio ``mu_k``; larger makes ``rho_k0`` smaller.
        absent_class: How to treat a class without pixels, whose
            ``rho_0k`` would be infinite: ``'error'``, ``'zero'`` (no offset)
            or ``'max'`` (the largest ``rho_0k`` of the present classes). Its
            ``rho_k0`` is never used and is 0.
        class_names: Names for the error messages.

    Example:
        >>> rho_0k, rho_k0 = margin_offsets([900, 100], tau=10)
        >>> [round(float(rho), 6) for rho in rho_0k]
        [0.111111, 3.0]
    """
    require('tau', tau, *NOT_NEGATIVE)
    require('absent_class', absent_class, *one_of(ABSENT_CLASS_POLICIES))
    counts = _as_counts(class_counts)
    present = counts > 0
    if absent_class == 'error' and not present.all():
        raise SettingError(
            f'{_name_classes(~present, class_names)} has no labelled pixel, '
            'so its margin-offset is infinite: take it out of the classes, '
            "add images that show it, or set absent_class='zero' or 'max'."
        )
    background = counts.sum() - counts
    rho_0k = np.zeros_like(counts)
    rho_0k[present] = tau * np.sqrt(background[present]) / counts[present]
    rho_k0 = margin_ratios(counts, upsilon, class_names) * rho_0k
    if absent_class == 'max':
        rho_0k[~present] = rho_0k.max()
    return MarginOffsets(rho_0k, rho_k0)


def tau_of_largest_offset(
    class_counts: ArrayLike, largest_offset: float
) -> float:
    """The tau at which the rarest class's ``rho_0k`` is a given number.

    Unlike tau, this number carries over to other data sets, to subsets and to
    other resolutions.

    Example:
        >>> tau_of_largest_offset([900, 100], largest_offset=3.0)
        10.0
    """
    require('largest_offset', largest_offset, *NOT_NEGATIVE)
    counts = _as_counts(class_counts)
    present = counts[counts > 0]
    unit = (np.sqrt(counts.sum() - present) / present).max()
    # One class with every pixel has no offset at any tau.
    return float(largest_offset / unit) if unit else largest_offset


def large_offset_warning(
    rho_0k: ArrayLike, class_names: Sequence[str] | None = None
) -> str | None:
    """A sentence with the remedy if no score can overcome an offset."""
    offsets = np.atleast_1d(rho_0k)
    largest = offsets.max()
    if largest <= LARGE_OFFSET:
        return None
    classes = _name_classes(offsets == largest, class_names)
    return (
        f'The margin-offset of {classes} is {largest:,.0f}, far beyond the '
        'scores of a network: the loss starts at about that value and the '
        'other classes hardly count. The fewer pixels a data set has, the '
        'larger are the offsets of the same tau: set largest_offset=0.4 in '
        'the loss in place of tau.'
    )


def margin_ratios(
    class_counts: ArrayLike,
    upsilon: float = 1.0,
    class_names: Sequence[str] | None = None,
) -> Array:
    """``mu_k = rho_k0 / rho_0k`` of Corollary 1; 0 for an absent class."""
    require('upsilon', upsilon, *POSITIVE)
    counts = _as_counts(class_counts)
    total = counts.sum()
    background = total - counts
    prior = counts / total
    if (background == 0).any():
        raise SettingError(
            f'{_name_classes(background == 0, class_names)} holds every '
            'labelled pixel, so there is no margin to calibrate: check the '
            'label mapping, or train with cross-entropy.'
        )
    denominator = upsilon * background - prior * np.sqrt(background)
    if (denominator <= 0).any():
        smallest = (prior / np.sqrt(background)).max()
        raise SettingError(
            f'upsilon={upsilon} makes mu_k of '
            f'{_name_classes(denominator <= 0, class_names)} infinite or '
            f'negative: choose upsilon above {smallest:.3g}.'
        )
    return prior * np.sqrt(counts) / denominator


def generalisation_gap(
    class_counts: ArrayLike,
    rho_0k: ArrayLike,
    rho_k0: ArrayLike,
    complexity: float,
) -> float:
    """Theorem 1 (Eq. 14): eps of ``mIoU >= mIoU_bar - eps``.

    It is nan where the theorem says nothing: a denominator is not positive,
    because the offsets are too small for this ``complexity`` F of the model.
    Counts ``N_k`` (all positive) and offsets have the shape (K,).
    """
    require('complexity', complexity, *POSITIVE)
    counts = _as_counts(class_counts)
    background_offset = np.asarray(rho_0k, dtype=np.float64)
    root = np.sqrt(counts.sum() - counts)
    scale = 4 * len(counts) * complexity
    denominator = counts * background_offset / scale - root
    # mu_k of an absent class is 0 / 0.
    with np.errstate(invalid='ignore', divide='ignore'):
        mu = np.asarray(rho_k0, dtype=np.float64) / background_offset
        gaps = (root + np.sqrt(counts) / mu) / denominator
    return float(np.where(denominator > 0, gaps, np.nan).mean())


def optimal_rho_0k(class_counts: ArrayLike, total: float) -> Array:
    """Corollary 1: the ``rho_0k`` of a given sum that minimise Theorem 1."""
    require('total', total, *POSITIVE)
    rho_0k = margin_offsets(class_counts, tau=1.0).rho_0k
    return rho_0k * (total / rho_0k.sum())


def _as_counts(class_counts: ArrayLike) -> Array:
    counts = np.asarray(class_counts, dtype=np.float64)
    if counts.ndim != 1 or len(counts) < 2:
        raise SettingError(
            'class_counts must be one count for each of at least two '
            f'classes, got shape {counts.shape}.'
        )
    if not np.isfinite(counts).all() or (counts < 0).any():
        raise SettingError(
            'class_counts must be finite and not negative, got '
            f'{counts[~(np.isfinite(counts) & (counts >= 0))].tolist()}.'
        )
    if counts.sum() == 0:
        raise SettingError(
            'class_counts are all zero: no labelled pixel was counted; '
            'check the annotation files and ignore_index.'
        )
    return counts


def _name_classes(mask: NDArray, names: Sequence[str] | None) -> str:
    """The classes in a mask (K,), by number and name."""
    indices = np.flatnonzero(mask).tolist()
    if names is None:
        return 'class ' + ', '.join(str(index) for index in indices)
    listed = (f'{i} ({printable(names[i])})' for i in indices)
    return 'class ' + ', '.join(listed)
