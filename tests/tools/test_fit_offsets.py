"""tools/fit_offsets.py as users call it."""

import json

import numpy as np
import pytest
import torch
from mmengine.config import Config

from tests.commands import TOOLS, free_port, output_of, output_of_python
from tests.evaluation.fakes import predict, read_train_ids
from tests.offsets.builders import World, make_world


@pytest.fixture(scope='module')
def trained(tmp_path_factory) -> World:
    return make_world(tmp_path_factory.mktemp('trained'))


@pytest.fixture
def command(trained, tmp_path) -> list[str]:
    """Arguments of a run with a work dir and a logger of its own."""
    flags = ['--work-dir', str(tmp_path / 'work_dir')]
    flags += ['--cfg-options', f'experiment_name={tmp_path.name}']
    return [str(trained.config), str(trained.checkpoint), *flags]


def test_from_a_checkpoint_to_a_better_one(trained, command, capsys, tmp_path):
    target = trained.checkpoint.with_name('model_offsets.pth')
    original = trained.checkpoint.read_bytes()
    said = output_of(capsys, 'fit_offsets', *command)
    assert trained.checkpoint.read_bytes() == original
    record = json.loads(target.with_suffix('.json').read_text())
    for part in ('before', 'after'):
        assert f'{record[part]["mean"]:.2f}' in said
    assert '| car ' in said
    assert f'Wrote {target}' in said
    # The new one is an ordinary checkpoint for the other tools.
    config = str(trained.config)
    said = output_of(capsys, 'test', config, target, *command[2:])
    assert f'mIoU {record["after"]["mean"]:.2f}' in said
    # It is recognised, and the original is named as the one to give.
    command[1] = str(target)
    said = output_of(capsys, 'fit_offsets', *command, code=1)
    assert 'has offsets already' in said
    assert 'give the original checkpoint' in said


def test_nothing_is_written_where_nothing_is_gained(command, capsys, tmp_path):
    fitted, target = tmp_path / 'fitted.pth', tmp_path / 'new' / 'model.pth'
    output_of(capsys, 'fit_offsets', *command, '--out', fitted)
    # The same weights, but for the record of the fit.
    state = torch.load(fitted, weights_only=False)['state_dict']
    torch.save(state, tmp_path / 'weights.pth')
    command[1] = str(tmp_path / 'weights.pth')
    said = output_of(capsys, 'fit_offsets', *command, '--out', target)
    assert 'No checkpoint was written' in said
    assert not target.parent.exists()
    flags = ('--out', target, '--force', '--images', 4)
    output_of(capsys, 'fit_offsets', *command, *flags)
    written = torch.load(target, weights_only=False)
    assert written['meta'].keys() == {'fitted_offsets'}


def test_a_submission_with_offsets(world, capsys, tmp_path):
    """For the folders of a benchmark, whose test split has no labels."""
    root, config, checkpoint = world
    target, out = tmp_path / 'offsets.pth', tmp_path / 'out'
    flags = ['--work-dir', tmp_path / 'work_dir']
    flags += ['--cfg-options', f'visualizer.name={tmp_path.name}']
    fit = [config, checkpoint, '--force', '--out', target, *flags]
    output_of(capsys, 'fit_offsets', *fit)
    submit = [config, target, '--format-only', '--out', out, *flags]
    output_of(capsys, 'test', *submit)
    images = sorted(root.glob('leftImg8bit/test/*/*.png'))[:3]
    expected = predict(config, target, images)
    for image, prediction in zip(images, expected, strict=True):
        found = read_train_ids(out / image.name)
        np.testing.assert_array_equal(found, prediction)


def test_two_ranks_write_the_same(command, capsys, tmp_path):
    """Also if the second one has fewer images."""
    command += ['--images', 7]
    alone = output_of(
        capsys, 'fit_offsets', *command, '--out', tmp_path / '1.pth'
    )
    start = ['-m', 'torch.distributed.run', '--nproc_per_node', 2]
    start += ['--master_port', free_port(), TOOLS / 'fit_offsets.py']
    flags = ['--launcher=pytorch', '--out', tmp_path / '2.pth']
    together = output_of_python(tmp_path, *start, *command, *flags)
    assert alone.count('| car ') == together.count('| car ') == 1
    records = [(tmp_path / f'{i}.json').read_text() for i in (1, 2)]
    assert json.loads(records[0]) == json.loads(records[1])


def test_mistakes_in_a_sentence(trained, command, capsys, tmp_path):
    other = Config.fromfile(trained.config)
    other.model.backbone.base_channels = 6
    other.model.backbone.norm_cfg.num_groups = 3
    other.model.decode_head.update(in_channels=6, channels=6)
    other.dump(tmp_path / 'other.py')
    alone = Config.fromfile(trained.config)
    alone.val_dataloader = alone.val_cfg = alone.val_evaluator = None
    alone.dump(tmp_path / 'alone.py')
    config, checkpoint, *work_dir = command
    for arguments, expected in (
        ([tmp_path / 'other.py', checkpoint], "config's network (size mism"),
        ([tmp_path / 'alone.py', checkpoint], 'has no val_dataloader'),
        ([config, tmp_path / 'no.pth'], 'does not exist'),
        ([config, checkpoint, '--images', 0], 'choose 1 or more'),
        ([config, checkpoint, '--out', checkpoint], 'is kept'),
        ([config, checkpoint, '--out', tmp_path], 'cannot be written'),
    ):
        said = output_of(capsys, 'fit_offsets', *arguments, *work_dir, code=1)
        (line,) = (x for x in said.splitlines() if x.startswith('error: '))
        assert expected in line
