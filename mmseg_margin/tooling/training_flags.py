"""What the flags of ``tools/train.py`` change in a config."""

from mmengine.config import Config

from mmseg_margin.errors import SettingError
from mmseg_margin.walks import registered_name


def use_amp(cfg: Config) -> None:
    """Mixed precision with a dynamic loss scale."""
    wrapper = cfg.optim_wrapper
    name = registered_name(wrapper)
    if name == 'AmpOptimWrapper':
        return
    if name != 'OptimWrapper':
        raise SettingError(
            f'--amp works with OptimWrapper, not with {name}: set '
            "optim_wrapper.type='AmpOptimWrapper' in the config."
        )
    wrapper.type = 'AmpOptimWrapper'
    wrapper.loss_scale = 'dynamic'


def without_validation(cfg: Config) -> None:
    """Take out everything that evaluates while training."""
    for key in ('val_cfg', 'val_dataloader', 'val_evaluator'):
        cfg[key] = None
    checkpoint = (cfg.get('default_hooks') or {}).get('checkpoint') or {}
    checkpoint.pop('save_best', None)


def scale_learning_rate(cfg: Config) -> None:
    """Turn on mmengine's linear scaling rule."""
    if not (cfg.get('auto_scale_lr') or {}).get('base_batch_size'):
        raise SettingError(
            '--auto-scale-lr needs auto_scale_lr.base_batch_size in the '
            'config: set it to the batch size that its learning rate is for.'
        )
    cfg.auto_scale_lr.enable = True
