"""Searches with real trainings: undisturbed, killed, shared, impossible."""

import json
import re
import time
from pathlib import Path

import pytest
import torch
from mmengine.config import Config
from optuna.trial import TrialState

from mmseg_margin.tooling.launch import build_runner, load_config
from mmseg_margin.tuning import tune
from mmseg_margin.tuning.study import SharedStudy, best_of
from mmseg_margin.tuning.tune import best_config_text
from tests.processes import fork, wait_for
from tests.tuning.conftest import ITERATIONS, SPACE, add_trial
from tests.upstream import CONFIGS

BEGUN, TRIALS = 4, 7
DEMO = next((Path(__file__).parents[2] / 'configs/demo').glob('*_margin_*.py'))
LOSS = {'type': 'MarginCalibrationLoss', 'tau': 2.5, 'log_base': 'e'}
RECIPES = {
    'two heads': CONFIGS
    / 'deeplabv3plus/deeplabv3plus_r50-d8_4xb2-80k_cityscapes-512x1024.py',
    'a cascade': CONFIGS
    / 'ocrnet/ocrnet_hr18_4xb2-40k_cityscapes-512x1024.py',
    'hooks and margins': DEMO,
}


def prepare(config, out, trials=BEGUN, level=0.0):
    """A search with whole trials that reached a level half-way."""
    cfg = Config.fromfile(config)
    identity = {'config': cfg.pretty_text, 'seed': 0, 'init': None}
    shared = SharedStudy(out, identity, ITERATIONS)
    points = {1: 0.0, 2: 0.0, 3: level, 4: level}
    for number in range(trials):
        setting = {**SPACE.first['margin'], 'largest_offset': 1.0 + number}
        add_trial(shared, setting, 1.0, points=points)
    return out


def search(config, out, trials=TRIALS):
    """The body of a forked process; what it shows goes into a file."""
    torch.set_num_threads(1)
    with open(out.with_suffix('.log'), 'a') as log:
        return tune(
            Config.fromfile(config),
            trials,
            out,
            show=lambda line: print(line, file=log, flush=True),
        )


def shown(out):
    return out.with_suffix('.log').read_text().splitlines()


def points(out, number):
    """How many points the curve of a trial has."""
    path = out / 'trials' / str(number) / 'curves.json'
    try:
        return len(json.loads(path.read_text())['val_mIoU'])
    except (OSError, ValueError):
        return 0


def test_hopeless_trials_are_stopped_early(config, tmp_path):
    out = prepare(config, tmp_path / 'out', level=100.0)
    (trial,) = search(config, out, BEGUN + 1).trials[BEGUN:]
    assert trial.state == TrialState.PRUNED
    assert list(trial.intermediate_values) == [1, 2, 3]


def test_a_killed_search_ends_with_the_same_table(config, tmp_path):
    """Every trial is killed once, at another point."""
    expected = search(config, prepare(config, tmp_path / 'undisturbed'))
    *lines, verdict, _ = shown(expected.out)
    best = best_of(expected.trials).number
    assert f'trial {best} ' in verdict
    kept = {path.parent.name for path in expected.out.rglob('*.pth')}
    assert kept == {str(best)}
    for number, line in enumerate(lines, BEGUN):
        trial = expected.trials[number]
        assert trial.state == TrialState.COMPLETE
        assert list(trial.intermediate_values) == [1, 2, 3, 4]
        told = rf'trial {number}: objective=.*, best .*; {number + 1} of 7 tri'
        assert re.match(rf'{told}als, 0:\d\d:\d\d left', line)

    out = prepare(config, tmp_path / 'out')
    for number, when in ((BEGUN, 1), (BEGUN + 1, 3), (BEGUN + 2, 2)):
        process = fork(search, config, out)
        while points(out, number) < when:
            assert process.is_alive()
            time.sleep(0.01)
        process.kill()
        process.join()
    for trial, same in zip(
        search(config, out).trials, expected.trials, strict=True
    ):
        assert (trial.params, trial.state) == (same.params, same.state)
        assert trial.value == same.value
        assert trial.intermediate_values == same.intermediate_values


def test_two_processes_share_a_search(config, tmp_path):
    """It begins with the named objectives and the config's own setting."""
    out = tmp_path / 'out'
    processes = [fork(search, config, out, 4) for _ in range(2)]
    assert wait_for(processes, 600) == [0, 0]
    trials = [line for line in shown(out) if line.startswith('trial ')]
    begun = (
        'jaccard',
        'margin, pos_weight=num_classes, log_base=e, class_mean=True',
        'margin, pos_weight=1, log_base=2',
        'margin',
    )
    for number, (line, objective) in enumerate(
        zip(sorted(trials), begun, strict=True)
    ):
        assert line.startswith(f'trial {number}: objective={objective}')


def test_the_best_config_trains_with_the_best_setting(config, tmp_path):
    """The recipe has another log_base and the eager backend."""
    out = prepare(config, tmp_path / 'out', trials=1)
    shared = search(config, out, 1)
    best = dict(best_of(shared.trials).params)
    assert best.pop('objective') == 'margin'
    cfg = load_config(str(out / 'best_config.py'))
    (loss,) = [h.loss for h in cfg.custom_hooks if h.type == 'SwapLossHook']
    assert {name: loss[name] for name in best} == best
    assert 'tau' not in loss
    assert loss['backend'] == 'eager'
    cfg.work_dir = str(tmp_path)
    cfg.train_cfg.max_iters = 1
    cfg.val_dataloader = cfg.test_dataloader = None
    cfg.test_cfg = cfg.test_evaluator = None
    runner = build_runner(cfg)
    runner.train()
    assert runner.model.decode_head.loss_decode.settings.log_base == 2


HEAD = 'model.decode_head'


@pytest.mark.parametrize(
    ('key', 'value', 'said'),
    [
        ('val_dataloader', None, 'has no val_dataloader'),
        ('train_cfg', {'max_epochs': 2, '_delete_': True}, 'trains by epochs'),
        # mu has no positive denominator.
        (f'{HEAD}.loss_decode.upsilon', 1e-9, 'choose upsilon above'),
        (f'{HEAD}.type', dict, r'small\.py imports its classes'),
    ],
)
def test_a_config_that_cannot_be_tuned(cfg, tmp_path, key, value, said):
    """It is refused before any trial."""
    cfg.merge_from_dict({key: value})
    with pytest.raises(ValueError, match=said):
        tune(cfg, 1, tmp_path / 'out')
    assert not (tmp_path / 'out').exists()


@pytest.mark.parametrize('recipe', RECIPES)
def test_only_the_objective_changes(tmp_path, recipe):
    base = load_config(str(RECIPES[recipe]))
    path = tmp_path / 'best_config.py'
    path.write_text(best_config_text(base, LOSS, tmp_path, 'Best of two.'))
    assert path.read_text().startswith('# Best of two.\n_base_ = ')
    best = load_config(str(path))
    assert 'mmseg_margin' in best.custom_imports['imports']
    hooks = [hook.type for hook in best.custom_hooks]
    assert hooks.count('ClassStatsHook') == 1
    assert {h.type for h in base.get('custom_hooks', [])} <= {*hooks}
    assert best.custom_hooks[hooks.index('SwapLossHook')].loss == LOSS
    for cfg in (base, best):
        for key in ('custom_imports', 'custom_hooks'):
            cfg.pop(key, None)
    assert best.to_dict() == base.to_dict()
