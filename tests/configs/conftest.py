"""Tiny data sets, made once for all tests of the recipes."""

from collections.abc import Mapping
from pathlib import Path

import pytest
from mmengine.registry import init_default_scope

from tests import layouts
from tools.converters.camvid import convert_camvid
from tools.converters.endovis import convert_endovis
from tools.instrument_synthesis import Settings, write_dataset


@pytest.fixture(autouse=True)
def mmseg_scope() -> None:
    init_default_scope('mmseg')


@pytest.fixture(scope='session')
def data_roots(
    tmp_path_factory: pytest.TempPathFactory,
) -> Mapping[str, Path]:
    """The data root of each type of data set."""
    root = tmp_path_factory.mktemp('data')
    challenge = layouts.make_endovis_challenge(root / 'challenge')
    convert_endovis(challenge, root / 'endovis2017')
    convert_camvid(
        layouts.make_camvid_segnet(root / 'segnet'), root / 'camvid'
    )
    write_dataset(
        root / 'parts', Settings(width=64, height=48, train=4, val=2, test=2)
    )
    return {
        'ADE20KDataset': layouts.make_ade20k(root / 'ade'),
        'BaseSegDataset': layouts.make_folders(root / 'folders'),
        'BDD100KDataset': layouts.make_bdd100k(root / 'bdd100k'),
        'CamVidDataset': root / 'camvid',
        'CityscapesDataset': layouts.make_cityscapes(
            root / 'cityscapes', coarse=True
        ),
        'COCOStuffDataset': layouts.make_coco_stuff10k(root / 'stuff'),
        'EndoVisPartsDataset': root / 'endovis2017',
        'InstrumentPartsDataset': root / 'parts',
        'MapillaryDataset_v1': layouts.make_mapillary(root / 'mapillary'),
        'PascalVOCDataset': layouts.make_voc2012(root / 'voc'),
    }
