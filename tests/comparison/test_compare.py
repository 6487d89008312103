"""A comparison with a very small net: fair, repeatable, not to be lost."""

import os
import random
import re
import shutil
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest
import torch
from mmengine.config import Config

from mmseg_margin import offsets
from mmseg_margin.comparison import compare, training
from mmseg_margin.comparison.runs import load_results, read_run, run_folder
from tests.commands import TOOLS, load_tool
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


def command(config, out, *losses, seeds=1):
    flags = ('--jobs', '2', '--seeds', str(seeds), '--losses', *losses)
    return [str(config), '--out', str(out), *flags]


def start(*arguments):
    return subprocess.Popen(
        [sys.executable, TOOLS / 'compare.py', *command(*arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def main(*arguments, options=(), **settings):
    argv = [*command(*arguments, **settings), *options]
    load_tool('compare')['main'](argv)


def results(out):
    """What the table is made of, without what a clock has measured."""
    return {
        run.name: (run.metrics, run.class_iou, run.curves)
        for run in load_results({'': out}).runs
        if run.is_done()
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
    assert (out / 'report' / 'report.md').is_file()
    assert [*results(out)] == ['ce', 'twin', 'margin']
    for name in results(out):
        assert f'{name}, seed 0: mIoU' in output
    ce, twin, margin = load_results({'': out}).runs
    assert twin.objective == 'ce:loss_name=loss_twin'
    assert ce.losses == [{'type': 'CrossEntropyLoss'}]
    assert margin.losses[0]['type'] == 'MarginCalibrationLoss'
    assert (margin.config, margin.iterations) == ('small.py', ITERATIONS)
    assert len(margin.class_counts) == len(margin.classes) == 4
    assert margin.versions['torch']
    expected = {'train_loss', 'val_loss', 'train_mIoU', 'val_mIoU'}
    assert margin.curves.keys() >= expected
    for points in margin.curves.values():
        assert [iteration for iteration, _ in points] == [1, 2, 3, 4]
    # Nothing is done twice: mmengine makes a folder for each training.
    assert len([*run_folder(out, 'ce', 0).glob('20*_*')]) == 1


def test_objectives_differ_in_nothing_else(finished):
    """The same objective under two names sees the same weights and data."""
    found = results(finished[0])
    assert found['ce'] == found['twin']
    assert found['ce'] != found['margin']


def test_killed_at_any_moment_it_gives_the_same_table(
    config, finished, tmp_path
):
    out = tmp_path / 'out'
    rng = random.Random(0)
    for _ in range(int(os.environ.get('MMSEG_MARGIN_KILLS', '1'))):
        process = start(config, out, 'ce', 'margin')
        time.sleep(rng.uniform(4, 14))
        process.kill()
        process.communicate()
    # A run that has begun keeps the config that an earlier version wrote.
    begun = [*out.glob('runs/*/*/run.py')]
    for path in begun:
        path.write_text(f'{path.read_text()}begun = True\n')
    main(config, out, 'ce', 'margin')
    assert all(Config.fromfile(path).begun for path in begun)
    undisturbed = results(finished[0])
    del undisturbed['twin']
    assert results(out) == undisturbed


def test_more_is_added_and_nothing_done_again(config, finished, capsys):
    """Also that a run which fails leaves the others."""
    out, _ = finished
    before = results(out)
    done = run_folder(out, 'margin', 0) / 'record.json'
    written = done.stat().st_mtime_ns
    with pytest.raises(SystemExit):
        main(config, out, 'margin', 'bad=margin:upsilon=1e-30')
    printed = capsys.readouterr()
    assert '1 of 2 runs failed, the first of them bad, seed 0' in printed.err
    cause = r'see \S*bad/seed-0/log\.txt \(upsilon=1e-30 makes mu_k of .*\)'
    assert re.search(cause, printed.err), printed.err
    assert done.stat().st_mtime_ns == written
    assert results(out) == before
    assert load_results({'': out}).missing() == {'': 'bad (seed 0)'}
    assert 'provisional' in (out / 'report' / 'report.md').read_text()


def test_offsets_are_fitted_to_finished_runs(finished, monkeypatch):
    """And the record keeps both measurements; nothing is trained again."""

    def fit(runner, checkpoint, out, force):
        """Gives every pixel to the last class."""
        saved = torch.load(checkpoint, weights_only=False)
        saved['state_dict']['decode_head.conv_seg.bias'][-1] += 1e4
        torch.save(saved, out)
        return SimpleNamespace(offsets=[0.0, 0.0, 0.0, 1e4])

    monkeypatch.setattr(offsets, 'fit_checkpoint', fit)
    folder = run_folder(finished[0], 'ce', 0)
    before = read_run(folder)
    checkpoints = {path: path.stat().st_mtime_ns for path in folder.glob('i*')}
    assert checkpoints
    training.main(folder, True)
    run = read_run(folder)
    assert run.is_done(fit=True)
    assert run.metrics == before.metrics
    assert run.fitted['offsets'] == [0.0, 0.0, 0.0, 1e4]
    assert run.fitted['class_iou'][:3] == [0, 0, 0]
    assert run.figures['fitted mIoU'] != run.figures['mIoU']
    assert (folder / 'predictions-fitted').is_dir()
    assert checkpoints == {p: p.stat().st_mtime_ns for p in folder.glob('i*')}


def test_fitting_needs_a_checkpoint(finished, tmp_path, capsys):
    folder = run_folder(finished[0], 'twin', 0)
    copied = shutil.copytree(folder, tmp_path / 'run')
    path = copied / 'run.py'
    path.write_text(path.read_text().replace(str(folder), str(copied)))
    for checkpoint in (*copied.glob('*.pth'), copied / 'last_checkpoint'):
        checkpoint.unlink()
    with pytest.raises(SystemExit):
        training.main(copied, True)
    assert 'has no checkpoint to fit offsets to' in capsys.readouterr().err


@pytest.mark.parametrize(
    ('losses', 'settings', 'said'),
    [
        (['ce'], {'seeds': 0}, '--seeds must be 1 or more'),
        (['twin=lovasz'], {}, 'another objective called twin: choose another'),
        (['x=ce', 'x=lovasz'], {}, "both ce and lovasz 'x': give each a name"),
        (['nonsense'], {}, "'nonsense' is not known"),
        (['lovasz'], {'options': OTHER_BATCH}, 'other settings: choose'),
        (['ce'], {'options': ['--init', 'a.pth']}, 'with another init'),
        (['ce'], {'options': ['--init', 'a{x}']}, 'with another init'),
    ],
)
def test_what_cannot_be_done_is_said(
    config, finished, capsys, losses, settings, said
):
    with pytest.raises(SystemExit, match='1'):
        main(config, finished[0], *losses, **settings)
    assert said in capsys.readouterr().err


@pytest.mark.parametrize('init', ['a{x}', 'missing-{seed}.pth'])
def test_a_missing_checkpoint_is_named(config, tmp_path, capsys, init):
    with pytest.raises(SystemExit):
        main(config, tmp_path / 'out', 'ce', options=['--init', init])
    named = init.replace('{seed}', '0')
    said = f'The checkpoint {named} of --init does not exist'
    assert said in capsys.readouterr().err


def test_names():
    own = 'margin:tau=20,log_base=e'
    names = compare.named_objectives(['ce', 'a=ce:0.5+lovasz:0.5', own, 'ce'])
    assert names == {'ce': 'ce', 'a': 'ce:0.5+lovasz:0.5', own: own}


@pytest.mark.parametrize(
    ('logged', 'cause'),
    [
        ('error: first\n', 'first'),
        ('error: no GPU\n(set X=1)\n', 'no GPU'),
        ('error: 1 problem(s)\n[problem] a\n[warning] b\n', 'a'),
        ('Traceback:\n  File "a"\na.BError: c: d\n', 'a.BError: c: d'),
        ('KeyboardInterrupt\n', 'KeyboardInterrupt'),
        ('11/18 - INFO - error: none\n', 'no error in it, exit code -9'),
    ],
)
def test_the_cause_of_a_failure_is_the_last_error(tmp_path, logged, cause):
    """Of this attempt: earlier ones have logged to the same file."""
    log = tmp_path / compare.LOG_FILE
    log.write_text(f'error: of yesterday\n{logged}')
    assert compare.cause_of_failure(log, 20, -9) == cause


@pytest.mark.parametrize(
    ('jobs', 'existing', 'threads'),
    [(1, None, '5'), (2, None, '2'), (9, None, '1'), (1, '3', '3')],
)
@pytest.mark.parametrize(
    ('visible', 'gpus'),
    [
        ('4, 5', ['4', '5', '4']),
        ('GPU-8a, GPU-17', ['GPU-8a', 'GPU-17', 'GPU-8a']),
        (None, ['0', '1', '0']),
    ],
)
def test_jobs_divide_cores_and_visible_gpus(
    monkeypatch, jobs, existing, threads, visible, gpus
):
    monkeypatch.setattr(compare, 'available_cores', lambda: 5)
    monkeypatch.setattr(torch.cuda, 'is_available', lambda: True)
    monkeypatch.setattr(torch.cuda, 'device_count', lambda: 2)
    variables = {'OMP_NUM_THREADS': existing, 'CUDA_VISIBLE_DEVICES': visible}
    for name, value in variables.items():
        monkeypatch.delenv(name, raising=False)
        if value:
            monkeypatch.setenv(name, value)
    found = [compare.environment_of(slot, jobs) for slot in range(3)]
    assert [each['CUDA_VISIBLE_DEVICES'] for each in found] == gpus
    assert {each['OMP_NUM_THREADS'] for each in found} == {threads}
