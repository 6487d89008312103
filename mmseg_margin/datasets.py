"""Data sets that upstream lacks."""

from mmengine import fileio
from mmseg.datasets import BaseSegDataset
from mmseg.registry import DATASETS

from .errors import MissingFileError

CAMVID_SUFFIXES = ('.png', '.jpg')
CAMVID_COLOURS = {
    'sky': [128, 128, 128],
    'building': [128, 0, 0],
    'pole': [192, 192, 128],
    'road': [128, 64, 128],
    'pavement': [60, 40, 222],
    'tree': [128, 128, 0],
    'sign': [192, 128, 128],
    'fence': [64, 64, 128],
    'car': [64, 0, 128],
    'pedestrian': [64, 64, 0],
    'bicyclist': [0, 128, 192],
}
PART_COLOURS = {
    'background': (40, 40, 40),
    'shaft': (0, 150, 255),
    'wrist': (255, 200, 0),
    'claspers': (0, 220, 90),
    'probe': (230, 40, 200),
}


@DATASETS.register_module()
class CamVidDataset(BaseSegDataset):
    """Street scenes of CamVid, SegNet's eleven classes and splits, void 255.

    Images are in ``train``, ``val`` and ``test`` below ``data_root``, labels
    of the same name in ``trainannot``, ``valannot`` and ``testannot``;
    ``tools/converters/camvid.py`` writes them from SegNet's download.

    Args:
        img_suffix: Suffix of the image files, ``.png`` as SegNet has them or
            ``.jpg``; None accepts either.

    Example:
        >>> dataset = dict(
        ...     type='CamVidDataset',
        ...     data_root='data/camvid',
        ...     data_prefix=dict(img_path='train', seg_map_path='trainannot'))
    """

    METAINFO = dict(
        classes=tuple(CAMVID_COLOURS), palette=list(CAMVID_COLOURS.values())
    )

    def __init__(self, img_suffix: str | None = None, **kwargs) -> None:
        self.suffixes = (img_suffix,) if img_suffix else CAMVID_SUFFIXES
        super().__init__(img_suffix=self.suffixes[0], **kwargs)

    def load_data_list(self) -> list[dict]:
        data_list: list[dict] = []
        for suffix in self.suffixes:
            self.img_suffix = suffix
            data_list = data_list or super().load_data_list()
        return data_list


@DATASETS.register_module()
class EndoVisPartsDataset(BaseSegDataset):
    """Instrument parts of EndoVis 2017, split as in the paper.

    Images are in ``images/{train,val,test}``, labels of the same name in
    ``labels/{train,val,test}`` below ``data_root``;
    ``tools/converters/endovis.py`` writes them from the challenge's folders.

    Example:
        >>> dataset = dict(
        ...     type='EndoVisPartsDataset',
        ...     data_root='data/endovis2017',
        ...     data_prefix=dict(
        ...         img_path='images/train', seg_map_path='labels/train'))
    """

    METAINFO = dict(
        classes=tuple(PART_COLOURS), palette=tuple(PART_COLOURS.values())
    )

    def __init__(self, img_suffix: str = '.png', **kwargs) -> None:
        super().__init__(img_suffix=img_suffix, **kwargs)


@DATASETS.register_module()
class InstrumentPartsDataset(EndoVisPartsDataset):
    """Instrument parts drawn by the project's own generator.

    ``tools/make_instrument_parts.py`` writes them, as ``.png`` or, with
    ``--format jpg``, for ``img_suffix='.jpg'``.
    """

    def load_data_list(self) -> list[dict]:
        folder = self.data_prefix['img_path']
        found = fileio.exists(folder, backend_args=self.backend_args)
        data_list = super().load_data_list() if found else []
        if not data_list:
            raise MissingFileError(
                f"There is no {self.img_suffix} image in '{folder}': create "
                'the data set with python -m mmseg_margin '
                'make_instrument_parts, or correct data_root and img_suffix.'
            )
        return data_list
