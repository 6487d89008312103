"""What a label loader is."""

from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

Info = dict[str, Any]


class LoadedLabel(NamedTuple):
    """One label as histograms of shape (256,), and what else is known."""

    delivered: NDArray[np.int64]
    stored: NDArray[np.int64]
    size: tuple[int, int] | None = None
    wrapped: bool = False
    beyond_uint8: tuple[int, ...] = ()


class LabelLoader(Protocol):
    """Loads the labels of one data set, from several threads at once."""

    def load(self, info: Info) -> LoadedLabel:
        """The label of one sample as the train pipeline would deliver it."""

    def describe(self, info: Info) -> str:
        """The mapping from stored to delivered values, for people."""

    def label_file(self, info: Info) -> str | None:
        """The label's local file, if it alone decides what is delivered."""

    def image_file(self, info: Info) -> str | None:
        """The image's local file, if its header tells the image's size."""
