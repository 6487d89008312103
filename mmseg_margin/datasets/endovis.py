"""EndoVis 2017, the paper's Robotic Instrument data set."""

from mmseg.datasets import BaseSegDataset
from mmseg.registry import DATASETS

from .instrument_parts import InstrumentPartsDataset


@DATASETS.register_module()
class EndoVisPartsDataset(BaseSegDataset):
    """Instrument parts of EndoVis 2017, split as in the paper.

    Images lie in ``images/{train,val,test}``, labels of the same name in
    ``labels/{train,val,test}`` below ``data_root``;
    ``tools/converters/endovis.py`` writes them from the challenge's folders.

    Example:
        >>> dataset = dict(
        ...     type='EndoVisPartsDataset',
        ...     data_root='data/endovis2017',
        ...     data_prefix=dict(
        ...         img_path='images/train', seg_map_path='labels/train'))
    """

    METAINFO = InstrumentPartsDataset.METAINFO

    def __init__(self, img_suffix: str = '.png', **kwargs) -> None:
        super().__init__(img_suffix=img_suffix, **kwargs)
