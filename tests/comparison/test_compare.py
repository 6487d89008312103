"""A comparison on a very small data set: fair, repeatable, not to be lost."""

import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from mmseg_margin.comparison.results import (
    RunResult,
    read_record,
    run_folder,
)
from tools.instrument_synthesis import Settings, write_dataset

ROOT = Path(__file__).parents[2]
TOOL = ROOT / 'tools' / 'compare.py'
CONFIG = next((ROOT / 'configs' / 'demo').glob('*-tiny_ce_*.py'))
# The fixture below trains three times: once is enough.
pytestmark = pytest.mark.xdist_group('comparison')
OPTIONS = [
    'train_cfg.max_iters=10',
    'model.backbone.base_channels=4',
    'model.backbone.stem_channels=4',
    'model.decode_head.in_channels=16',
    'model.decode_head.c1_in_channels=4',
    'model.decode_head.channels=8',
    'model.auxiliary_head.in_channels=8',
]


@pytest.fixture(scope='module')
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp('parts')
    write_dataset(
        folder, Settings(width=96, height=96, train=6, val=2, test=3)
    )
    return [
        f'{split}_dataloader.dataset.data_root={folder}'
        for split in ('train', 'val', 'test')
    ]


def start(data, out, *losses, seeds=1):
    return subprocess.Popen(
        [
            *(sys.executable, TOOL, CONFIG, '--out', out, '--jobs', '2'),
            *('--seeds', str(seeds), '--losses', *losses),
            *('--cfg-options', *OPTIONS, *data),
        ],
        env=os.environ | {'XDG_CACHE_HOME': str(out.parent / 'cache')},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def finish(process):
    output, _ = process.communicate(timeout=300)
    return process.returncode, output


def results(out):
    """What the table is made of, without what a clock has measured."""
    return {
        (path.parts[-3], path.parts[-2]): (
            result.metrics,
            result.class_iou,
            result.curves,
        )
        for path in out.glob('runs/*/*/result.json')
        for result in [read_record(RunResult, path)]
    }


@pytest.fixture(scope='module')
def finished(data, tmp_path_factory):
    out = tmp_path_factory.mktemp('undisturbed') / 'out'
    code, output = finish(
        start(data, out, 'ce', 'ce:loss_name=loss_twin', 'margin')
    )
    assert code == 0, output
    return out, output


def test_all_runs_are_trained_and_reported(finished):
    out, output = finished
    assert {objective for objective, _ in results(out)} == {
        'ce',
        'ce:loss_name=loss_twin',
        'margin',
    }
    for objective, _ in results(out):
        assert f'{objective}, seed 0: mIoU' in output
    report = out / 'report' / 'index.html'
    assert str(report) in output
    assert 'mIoU' in report.read_text('utf-8')
    assert (out / 'report' / 'report.md').is_file()


def test_objectives_differ_in_nothing_else(finished):
    """The same objective under two names sees the same weights and data."""
    found = results(finished[0])
    assert found['ce', 'seed-0'] == found['ce:loss_name=loss_twin', 'seed-0']
    assert found['ce', 'seed-0'] != found['margin', 'seed-0']


def test_curves_have_losses_and_scores_of_both_splits(finished):
    curves = results(finished[0])['margin', 'seed-0'][2]
    assert set(curves) == {'train_loss', 'val_loss', 'train_mIoU', 'val_mIoU'}
    for points in curves.values():
        assert [iteration for iteration, _ in points] == list(range(1, 11))


def test_killed_at_any_moment_it_gives_the_same_table(
    data, finished, tmp_path
):
    out = tmp_path / 'out'
    arguments = (data, out, 'ce', 'ce:loss_name=loss_twin', 'margin')
    rng = random.Random(0)
    for _ in range(int(os.environ.get('MMSEG_MARGIN_KILLS', '1'))):
        process = start(*arguments)
        time.sleep(rng.uniform(5, 25))
        process.kill()
        finish(process)
    code, output = finish(start(*arguments))
    assert code == 0, output
    assert results(out) == results(finished[0])


def test_a_second_run_only_makes_the_report(data, finished):
    out, _ = finished
    result = run_folder(out, 'margin', 0) / 'result.json'
    before = result.stat().st_mtime_ns
    code, output = finish(
        start(data, out, 'ce', 'ce:loss_name=loss_twin', 'margin')
    )
    assert code == 0, output
    assert result.stat().st_mtime_ns == before


def test_other_settings_need_another_folder(data, finished):
    code, output = finish(
        start([*data, 'train_dataloader.batch_size=2'], finished[0], 'ce')
    )
    assert code == 1
    assert '--out' in output
    assert 'Traceback' not in output


def test_a_run_that_fails_leaves_the_others(data, tmp_path):
    out = tmp_path / 'out'
    code, output = finish(start(data, out, 'margin:tau=-1', 'ce'))
    assert code == 1
    assert 'margin:tau=-1' in output
    assert 'log.txt' in output
    assert [objective for objective, _ in results(out)] == ['ce']


def test_study_keeps_what_is_needed_to_repeat_it(finished):
    study = json.loads((finished[0] / 'study.json').read_text('utf-8'))
    assert study['seeds'] == [0]
    assert study['losses']['margin'][0]['type'] == 'MarginCalibrationLoss'
    assert len(study['class_counts']) == len(study['classes']) == 5
    assert study['versions']['torch']
