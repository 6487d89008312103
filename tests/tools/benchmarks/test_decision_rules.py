"""tools/benchmarks/decision_rules.py on the folder of a comparison."""

import json
import shutil
import sys

import pytest
import torch

from tests.commands import call
from tests.offsets.builders import DISTURBANCE, make_world

TOOL = 'benchmarks/decision_rules'
COUNTS = [4, 3, 2, 1]
RANK_SEG = """
class RankSEG:
    def __init__(self, **settings):
        pass

    def predict(self, probabilities):
        return probabilities.argmin(1)
"""


@pytest.fixture(scope='module')
def world(tmp_path_factory):
    return make_world(tmp_path_factory.mktemp('world'))


@pytest.fixture
def run(world, tmp_path):
    """A run of a comparison, whose offsets undo the disturbance."""
    folder = tmp_path / 'comparison' / 'runs' / 'ce' / 'seed-0'
    folder.mkdir(parents=True)
    shutil.copy(world.config, folder / 'run.py')
    shutil.copy(world.checkpoint, folder / 'iter_60.pth')
    fitted = {'offsets': (-DISTURBANCE).tolist()}
    record = {'class_counts': COUNTS, 'fitted': fitted}
    (folder / 'record.json').write_text(json.dumps(record))
    return folder


def test_each_rule_is_measured(run, world, capsys, monkeypatch, tmp_path):
    (tmp_path / 'rankseg.py').write_text(RANK_SEG)
    monkeypatch.syspath_prepend(str(tmp_path))
    code, said = call(capsys, TOOL, tmp_path / 'comparison', '--losses', 'ce')
    assert code == 0, said
    rows = [line for line in said.splitlines() if line.startswith('| ')]
    header, row, mean = ([x.strip() for x in r.split('|')[1:-1]] for r in rows)
    assert header[-1] == 't'
    assert row[0] == 'comparison ce'
    assert mean[1:5] == row[1:5]
    prior = torch.tensor(COUNTS) / sum(COUNTS)
    logit_adjustment = -float(row[5]) * prior.log()
    runner = world.runner(tmp_path / 'runner')
    bias = runner.model.decode_head.conv_seg.bias.data
    for offsets, cell in zip(
        (0 * bias, -DISTURBANCE, logit_adjustment), row[1:4], strict=True
    ):
        runner.load_checkpoint(str(world.checkpoint))
        bias += offsets
        expected = runner.test()['mIoU']
        assert float(cell.split()[0]) == pytest.approx(expected, abs=0.011)
    assert float(row[4].split()[0]) < float(row[1])  # the least likely class


def test_what_is_missing_in_a_sentence(run, capsys, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, 'rankseg', None)
    code, said = call(capsys, TOOL, tmp_path / 'comparison')
    assert (code, 'not installed: pip install' in said) == (1, True)
