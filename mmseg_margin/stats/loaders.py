"""Which loader a data set needs."""

from typing import Any

from mmcv.transforms import LoadImageFromFile
from mmseg.datasets.transforms import LoadAnnotations

from .file_loader import FileLoader
from .label_loader import LabelLoader
from .pipeline_loader import PipelineLoader

UPSTREAM_PACKAGES = ('mmcv', 'mmseg')


def make_loader(dataset: Any) -> LabelLoader:
    """The fastest loader that delivers what the data set's pipeline does."""
    transforms = list(dataset.pipeline.transforms)
    image_loader = None
    for transform in transforms:
        if type(transform).__module__.split('.')[0] not in UPSTREAM_PACKAGES:
            break
        if isinstance(transform, LoadImageFromFile):
            image_loader = transform
        if type(transform) is LoadAnnotations:
            if transform.imdecode_backend == 'pillow':
                return FileLoader(transform, image_loader)
            break
    return PipelineLoader(transforms)
