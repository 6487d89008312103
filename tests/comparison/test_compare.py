"""A comparison with a very small net: fair, repeatable, not to be lost."""

import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace

import pytest
import torch

from mmseg_margin.comparison import compare
from mmseg_margin.comparison.records import (
    read_comparison,
    read_run,
    run_folder,
    write_run,
)
from tests.commands import TOOLS, call
from tests.small_training import write_config

LOSSES = ('ce', 'twin=ce:loss_name=loss_twin', 'margin')
OTHER_BATCH = ['--cfg-options', 'train_dataloader.batch_size=3']
ITERATIONS = 4
# The fixture below trains three times: once is enough.
pytestmark = pytest.mark.xdist_group('comparison')


@pytest.fixture(scope='module')
def config(tmp_path_factory):
    folder = tmp_path_factory.mktemp('comparison')
    return write_config(folder / 'small.py', max_iters=ITERATIONS)


def command(config, out, *losses):
    flags = ('--jobs', '2', '--seeds', '1', '--losses', *losses)
    return [str(config), '--out', str(out), *flags]


def start(*arguments):
    return subprocess.Popen(
        [sys.executable, TOOLS / 'compare.py', *command(*arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def results(out):
    """What the table is made of, without what a clock has measured."""
    return {
        run.name: (run.metrics, run.class_iou, run.curves)
        for run in read_comparison(out).done
    }


@pytest.fixture(scope='module')
def finished(config, tmp_path_factory):
    """Carried out by two real processes at once, with the first's output."""
    out = tmp_path_factory.mktemp('undisturbed') / 'out'
    processes = [start(config, out, *LOSSES), start(config, out, 'ce')]
    outputs = [process.communicate(timeout=900)[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0], outputs
    return out, outputs[0]


def test_all_runs_are_trained_and_reported(finished):
    out, output = finished
    report = out / 'report' / 'index.html'
    assert str(report) in output
    assert '>twin</th>' in report.read_text('utf-8')
    assert [*results(out)] == ['ce', 'twin', 'margin']
    # The plan comes first, then an estimate, then the results.
    said = ('3 training runs of 4', 'An iteration takes', 'ce, seed 0: mIoU')
    places = [output.index(text) for text in said]
    assert places == sorted(places)
    ce, twin, margin = read_comparison(out).runs
    assert twin.objective == 'ce:loss_name=loss_twin'
    assert ce.losses == [{'type': 'CrossEntropyLoss'}]
    assert margin.losses[0]['type'] == 'MarginCalibrationLoss'
    assert margin.versions['torch'] == torch.__version__
    assert (margin.start, margin.resumed, margin.error) == (None, [], None)
    # Nothing is done twice: mmengine makes a folder for each training.
    assert len([*run_folder(out, 'ce', 0).glob('20*_*')]) == 1


def test_objectives_differ_in_nothing_else(finished):
    """The same objective under two names sees the same weights and data."""
    found = results(finished[0])
    assert found['ce'] == found['twin']
    assert found['ce'] != found['margin']


def test_more_is_added_and_nothing_done_again(config, finished, capsys):
    """Also that a run which fails leaves the others, and says why."""
    out, _ = finished
    before = results(out)
    losses = ('margin', 'bad=margin:upsilon=1e-30')
    code, said = call(capsys, 'compare', *command(config, out, *losses))
    assert code == 1
    assert 'bad, seed 0: failed' in said
    assert 'upsilon=1e-30' in said
    assert 'bad/seed-0/log.txt' in said
    assert results(out) == before
    assert 'upsilon' in read_run(run_folder(out, 'bad', 0)).error
    page = (out / 'report' / 'index.html').read_text('utf-8')
    assert 'bad, seed 0 is incomplete' in page


def test_a_killed_run_continues_from_its_last_checkpoint(tmp_path, capsys):
    config = write_config(tmp_path / 'long.py', max_iters=400)
    out = tmp_path / 'out'
    folder = run_folder(out, 'ce', 0)
    last = folder / 'last_checkpoint'  # mmengine writes it after the file
    kills = int(os.environ.get('MMSEG_MARGIN_KILLS', '1'))
    for _ in range(kills):
        before = last.read_text() if last.exists() else ''
        process = start(config, out, 'ce')
        while not last.exists() or last.read_text() in ('', before):
            assert process.poll() is None, process.communicate()[0]
            time.sleep(0.01)
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
    code, said = call(capsys, 'compare', *command(config, out, 'ce'))
    assert code == 0, said
    run = read_run(folder)
    assert run.metrics
    assert len(run.resumed) == kills
    assert all(0 < iteration < 400 for iteration in run.resumed)
    iterations = [iteration for iteration, _ in run.curves['val_mIoU']]
    assert iterations == [80, 160, 240, 320, 400]
    page = (out / 'report' / 'index.html').read_text('utf-8')
    assert f'resumed at iteration {run.resumed[0]}' in page


@pytest.mark.parametrize(
    ('losses', 'options', 'said'),
    [
        (['twin=lovasz'], [], 'another objective called twin'),
        (['x=ce', 'x=lovasz'], [], "both ce and lovasz 'x'"),
        (['nonsense'], [], "'nonsense'"),
        (['lovasz'], OTHER_BATCH, 'other settings'),
        (['ce'], ['--init', 'missing-{seed}.pth'], 'missing-0.pth'),
        (['ce'], ['--cfg-options', 'train_cfg._delete_=True'], 'epochs'),
    ],
)
def test_mistakes(config, finished, capsys, losses, options, said):
    arguments = [*command(config, finished[0], *losses), *options]
    code, shown = call(capsys, 'compare', *arguments)
    assert code == 1
    assert said in shown


def test_another_start_is_refused_by_its_content(
    config, finished, tmp_path, capsys
):
    """Files of the same name, of which one was used before."""
    out = shutil.copytree(finished[0], tmp_path / 'out')
    paths = [tmp_path / name / 'start.pth' for name in 'abc']
    for path, content in zip(paths, (b'1', b'1', b'2'), strict=True):
        path.parent.mkdir()
        path.write_bytes(content)
    for run in read_comparison(out).runs:
        start = compare.describe_start(str(paths[0]))
        assert start.startswith('start.pth (sha256 ')
        write_run(replace(run, start=start), run_folder(out, run.name, 0))
    arguments = command(config, out, 'ce')
    for path, code in zip(paths, (0, 0, 1), strict=True):
        found, said = call(capsys, 'compare', *arguments, '--init', path)
        assert found == code, said
    assert 'another start' in said
    code, said = call(capsys, 'compare', *arguments)
    assert (code, 'another start' in said) == (1, True)
