from .camvid import CamVidDataset
from .endovis import EndoVisPartsDataset
from .instrument_parts import InstrumentPartsDataset

__all__ = ['CamVidDataset', 'EndoVisPartsDataset', 'InstrumentPartsDataset']
