"""CamVid with the eleven classes and the splits of SegNet."""

from mmseg.datasets import BaseSegDataset
from mmseg.registry import DATASETS

IMAGE_SUFFIXES = ('.png', '.jpg')


@DATASETS.register_module()
class CamVidDataset(BaseSegDataset):
    """Street scenes of CamVid, eleven classes, void is 255.

    Images lie in ``train``, ``val`` and ``test`` below ``data_root``, labels
    of the same name in ``trainannot``, ``valannot`` and ``testannot``;
    ``tools/converters/camvid.py`` writes them from SegNet's download.

    Args:
        img_suffix: Ending of the image files, ``.png`` as SegNet has them or
            ``.jpg``; whichever is there if not said.

    Example:
        >>> dataset = dict(
        ...     type='CamVidDataset',
        ...     data_root='data/camvid',
        ...     data_prefix=dict(img_path='train', seg_map_path='trainannot'))
    """

    METAINFO = dict(
        classes=(
            'sky',
            'building',
            'pole',
            'road',
            'pavement',
            'tree',
            'sign',
            'fence',
            'car',
            'pedestrian',
            'bicyclist',
        ),
        palette=[
            [128, 128, 128],
            [128, 0, 0],
            [192, 192, 128],
            [128, 64, 128],
            [60, 40, 222],
            [128, 128, 0],
            [192, 128, 128],
            [64, 64, 128],
            [64, 0, 128],
            [64, 64, 0],
            [0, 128, 192],
        ],
    )

    def __init__(self, img_suffix: str | None = None, **kwargs) -> None:
        self.suffixes = (img_suffix,) if img_suffix else IMAGE_SUFFIXES
        super().__init__(img_suffix=self.suffixes[0], **kwargs)

    def load_data_list(self) -> list[dict]:
        """List the images of the split."""
        data_list: list[dict] = []
        for suffix in self.suffixes:
            self.img_suffix = suffix
            data_list = data_list or super().load_data_list()
        return data_list
