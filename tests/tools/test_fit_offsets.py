"""tools/fit_offsets.py as users call it."""

import json

import pytest
from mmengine.config import Config

from tests.commands import TOOLS, free_port, output_of, output_of_python
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


def test_from_a_checkpoint_to_a_better_one(trained, command, capsys):
    target = trained.checkpoint.with_name('model_offsets.pth')
    original = trained.checkpoint.read_bytes()
    said = output_of(capsys, 'fit_offsets', *command)
    assert trained.checkpoint.read_bytes() == original
    record = json.loads(target.with_suffix('.json').read_text())
    for part in ('before', 'after'):
        assert f'{record[part]["mean"]:.2f}' in said
    assert '| car ' in said
    assert f'Wrote {target}' in said
    # The new one is recognised, and the original named as the one to give.
    command[1] = str(target)
    said = output_of(capsys, 'fit_offsets', *command, code=1)
    assert 'give the original checkpoint' in said


def test_two_ranks_write_the_same(command, capsys, tmp_path):
    """Also if the second one has fewer images."""
    command += ['--images', 7, '--out']
    output_of(capsys, 'fit_offsets', *command, tmp_path / '1.pth')
    start = ['-m', 'torch.distributed.run', '--nproc_per_node', 2]
    start += ['--master_port', free_port(), TOOLS / 'fit_offsets.py']
    command += [tmp_path / '2.pth', '--launcher=pytorch']
    said = output_of_python(tmp_path, *start, *command)
    assert said.count('| car ') == 1
    records = [(tmp_path / f'{i}.json').read_text() for i in (1, 2)]
    assert json.loads(records[0]) == json.loads(records[1])


def test_mistakes_in_a_sentence(trained, command, capsys, tmp_path):
    alone = Config.fromfile(trained.config)
    alone.val_dataloader = alone.val_cfg = alone.val_evaluator = None
    alone.dump(tmp_path / 'alone.py')
    config, checkpoint, *work_dir = command
    for arguments, expected in (
        ([tmp_path / 'alone.py', checkpoint], 'val_dataloader'),
        ([config, tmp_path / 'no.pth'], 'exist'),
        ([config, checkpoint, '--out', checkpoint], '.pth'),
        ([config, checkpoint, '--out', tmp_path / 'x.json'], '.pth'),
    ):
        said = output_of(capsys, 'fit_offsets', *arguments, *work_dir, code=1)
        (line,) = (x for x in said.splitlines() if x.startswith('error: '))
        assert expected in line
    assert not (tmp_path / 'x.json').exists()
