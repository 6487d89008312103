"""Choosing images of a data set."""

import numpy as np


def evenly_spaced(total: int, number: int) -> list[int]:
    """At most ``number`` indices below ``total``, from first to last.

    Example:
        >>> evenly_spaced(10, 4)
        [0, 3, 6, 9]
    """
    chosen = np.linspace(0, total - 1, min(number, total))
    return chosen.round().astype(int).tolist()
