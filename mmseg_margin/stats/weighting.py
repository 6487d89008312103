"""Class weights that follow from the class counts."""

from collections.abc import Sequence

import numpy as np

from mmseg_margin.errors import SettingError

# Class weights are proportional to this power of 1 / N_k.
POWERS = {'inverse': 1.0, 'sqrt': 0.5}
WEIGHT_METHODS = (*POWERS, 'median', 'effective')


def check_weight_method(name: str, method: str | float) -> None:
    """Raise unless ``method`` is one of :data:`WEIGHT_METHODS` or a power."""
    if isinstance(method, str):
        is_known = method in WEIGHT_METHODS
    else:
        is_known = 0 <= method <= 1
    if not is_known:
        raise SettingError(
            f'{name}={method!r} is not one of {WEIGHT_METHODS}, nor a power '
            'of the inverse frequency from 0 to 1.'
        )


def class_weights(
    counts: Sequence[int],
    method: str | float = 'inverse',
    image_pixels: Sequence[int] | None = None,
) -> list[float]:
    """Class weights from ``N_k``, K of them; an absent class gets 1.

    Args:
        counts: ``N_k``, the labelled pixels of each class.
        method: ``'inverse'``: ``N / (K N_k)``, so that all classes carry the
            same total weight and the average pixel weighs 1. ``'sqrt'`` or a
            number: this power of it, scaled to the same average.
            ``'median'`` (Eigen and Fergus): ``median_j f_j / f_k`` with
            ``f_k`` the fraction of class k in the images that show it.
            ``'effective'`` (Cui et al.): ``1 / E_k``, scaled to a mean of 1,
            with the effective number ``E_k = (1 - beta^N_k) / (1 - beta)``
            and ``beta = 1 - K / N``: classes above the average count
            ``N / K`` saturate, rare ones approach the inverse frequency.
        image_pixels: Labelled pixels of the images that show each class, for
            ``'median'``; without it ``f_k`` is the fraction in all images.
    """
    check_weight_method('method', method)
    all_counts = np.asarray(counts, dtype=np.float64)
    present = all_counts > 0
    pixels = all_counts[present]
    power = POWERS.get(method) if isinstance(method, str) else method
    if power is not None:
        found = pixels**-power
        found *= pixels.sum() / (pixels * found).sum()
    elif method == 'median':
        fraction = pixels / pixels.sum()
        if image_pixels is not None:
            fraction = pixels / np.asarray(image_pixels)[present]
        found = np.median(fraction) / fraction
    else:
        # expm1 and log1p, because beta may round to 1.
        log_beta = np.log1p(-min(len(pixels) / pixels.sum(), 0.5))
        found = -1 / np.expm1(pixels * log_beta)
        found /= found.mean()
    weights = np.ones_like(all_counts)
    weights[present] = found
    return weights.tolist()
