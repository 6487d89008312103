"""Configs that inherit, and change only the losses."""

from pathlib import Path

import pytest
from mmengine.config import Config

from mmseg_margin.tooling.launch import load_config
from mmseg_margin.tuning.tune import best_config_text, check_inheritable
from tests.upstream import CONFIGS

DEMO = next((Path(__file__).parents[2] / 'configs/demo').glob('*_margin_*.py'))
LOSS = {'type': 'MarginCalibrationLoss', 'tau': 2.5, 'log_base': 'e'}
RECIPES = {
    'two heads': CONFIGS
    / 'deeplabv3plus/deeplabv3plus_r50-d8_4xb2-80k_cityscapes-512x1024.py',
    'a cascade': CONFIGS
    / 'ocrnet/ocrnet_hr18_4xb2-40k_cityscapes-512x1024.py',
    'hooks and margins': DEMO,
}


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


def test_a_config_of_imported_classes_is_refused():
    model = {'decode_head': {'type': dict}}
    cfg = Config({'model': model}, cfg_text='-', filename='x.py')
    with pytest.raises(ValueError, match=r'x\.py imports its classes'):
        check_inheritable(cfg)
