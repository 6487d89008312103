"""Data sets, and a loading transform, that upstream lacks."""

from collections.abc import Mapping

import numpy as np
from mmengine import fileio
from mmseg.datasets import BaseSegDataset
from mmseg.datasets.transforms import LoadAnnotations
from mmseg.registry import DATASETS, TRANSFORMS

from .errors import MissingFileError, SettingError

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

    ``tools/make_instrument_parts.py`` writes them.
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


@TRANSFORMS.register_module()
class LoadMappedAnnotations(LoadAnnotations):
    """mmseg's ``LoadAnnotations`` with a mapping of the stored values.

    ``reduce_zero_label`` and a shorter list of classes are applied after it.
    The label scan applies the mapping to histograms, not to pixels.

    Args:
        mapping: From the value in the file to the one to take instead, both
            from 0 to 255; other values stay.
        kwargs: Those of ``LoadAnnotations``.

    Example:
        >>> masks = dict(type='LoadMappedAnnotations', mapping={255: 1})
    """

    def __init__(self, mapping: Mapping[int, int], **kwargs) -> None:
        super().__init__(**kwargs)
        # The keys are strings in a config that was written and read again.
        self.mapping = {int(old): int(new) for old, new in mapping.items()}
        if not all(0 <= x < 256 for x in sum(self.mapping.items(), ())):
            raise SettingError(
                f'mapping={mapping} must map values from 0 to 255 to values '
                'from 0 to 255.'
            )

    def _load_seg_map(self, results: dict) -> None:
        stored = dict(results, reduce_zero_label=False, label_map=None)
        super()._load_seg_map(stored)
        table = np.arange(256, dtype=np.uint8)
        table[list(self.mapping)] = list(self.mapping.values())
        # As in LoadAnnotations: 0 and 255 become 255, the others decrease.
        if results['reduce_zero_label']:
            table -= 1
            table[table == 254] = 255
        reduced = table.copy()
        for old, new in (results.get('label_map') or {}).items():
            table[reduced == old] = new
        results['gt_seg_map'] = table[stored['gt_seg_map']]

    def __repr__(self) -> str:
        inner = super().__repr__().partition('(')[2]
        return f'{type(self).__name__}(mapping={self.mapping}, {inner}'
