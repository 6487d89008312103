"""From a built data set, through its wrappers, to its annotation files."""

from dataclasses import dataclass
from typing import Any

from torch.utils.data import Subset

from .label_loader import LabelLoader
from .loaders import make_loader


@dataclass(frozen=True)
class Sample:
    """One annotation of the training set and how to load it."""

    position: int
    info: dict[str, Any]
    loader: LabelLoader

    @property
    def label_path(self) -> str:
        """Where the label comes from; some loaders find it by the image."""
        info = self.info
        return str(info.get('seg_map_path') or info.get('img_path', '?'))


def list_samples(dataset: Any) -> list[Sample]:
    """Every annotation once: repeats are left out, concatenations kept."""
    return [
        Sample(position, info, loader)
        for position, (info, loader) in enumerate(_walk(dataset))
    ]


def leaf_datasets(dataset: Any) -> list[Any]:
    """The data sets below all wrappers."""
    if hasattr(dataset, 'datasets'):
        return [x for part in dataset.datasets for x in leaf_datasets(part)]
    if hasattr(dataset, 'dataset'):
        return leaf_datasets(dataset.dataset)
    return [dataset]


def _walk(dataset: Any) -> list[tuple[dict[str, Any], LabelLoader]]:
    if hasattr(dataset, 'datasets'):  # ConcatDataset
        return [pair for part in dataset.datasets for pair in _walk(part)]
    if isinstance(dataset, Subset):
        inner = _walk(dataset.dataset)
        return [inner[index % len(inner)] for index in dataset.indices]
    if hasattr(dataset, 'dataset'):  # RepeatDataset, MultiImageMixDataset, ..
        return _walk(dataset.dataset)
    if not hasattr(dataset, 'get_data_info'):
        raise ValueError(
            f'{type(dataset).__name__} has no get_data_info(), so its '
            'annotation files cannot be found: derive it from '
            'BaseSegDataset, or give class_counts to the loss.'
        )
    loader = make_loader(dataset)
    return [(dataset.get_data_info(i), loader) for i in range(len(dataset))]
