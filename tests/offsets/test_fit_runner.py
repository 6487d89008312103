"""The fit on a real Runner."""

import pytest

from mmseg_margin.errors import DataSetError
from mmseg_margin.offsets import fit_runner
from tests.offsets.builders import write_images

WINDOWS = {'mode': 'slide', 'crop_size': (16, 24), 'stride': (8, 12)}


@pytest.mark.parametrize(
    'settings', [{'model.test_cfg': WINDOWS}, {'val_cfg.fp16': True}]
)
def test_sliding_windows_and_half_precision(world, tmp_path, settings):
    runner = world.runner(tmp_path / 'work_dir', **settings)
    result = fit_runner(runner, num_images=12)
    assert result.gain > 1
    assert result.num_images == 12


def test_the_ignored_label_is_that_of_the_validation(world, tmp_path):
    """A label as large as the number of classes is void only if it says so."""
    root = write_images(tmp_path / 'data', (0, 1, 2, 3, 4))
    settings = {
        f'{split}_dataloader.dataset.data_root': str(root / split)
        for split in ('train', 'val')
    }
    with pytest.raises(DataSetError, match='label 4'):
        fit_runner(world.runner(tmp_path / 'a', **settings))
    settings['val_evaluator.ignore_index'] = 4
    result = fit_runner(world.runner(tmp_path / 'b', **settings))
    expected = fit_runner(world.runner(tmp_path / 'c'))
    assert result.gain == pytest.approx(expected.gain, abs=10)
