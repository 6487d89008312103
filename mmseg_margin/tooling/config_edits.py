"""Edits of a config, for the flags of the tools train and test."""

from mmengine.config import Config

from mmseg_margin.config_tools import add_hook, as_list, registered_name
from mmseg_margin.errors import SettingError

ADDED_METRICS = {
    'bound': 'MarginBoundMetric',
    'cityscapes': 'CityscapesScoresMetric',
}
IOU_METRICS = ('IoUMetric', 'PerClassIoUMetric', 'TailIoUMetric')


def use_amp(cfg: Config) -> None:
    """Mixed precision with a dynamic loss scale."""
    wrapper = cfg.optim_wrapper
    name = registered_name({'type': 'OptimWrapper', **wrapper})
    if name == 'AmpOptimWrapper':
        return
    if name != 'OptimWrapper':
        raise SettingError(
            f'--amp works with OptimWrapper, not with {name}: set '
            "optim_wrapper.type='AmpOptimWrapper' in the config."
        )
    wrapper.update(type='AmpOptimWrapper', loss_scale='dynamic')


def without_validation(cfg: Config) -> None:
    """Remove the validation from a training."""
    for key in ('val_cfg', 'val_dataloader', 'val_evaluator'):
        cfg[key] = None
    checkpoint = (cfg.get('default_hooks') or {}).get('checkpoint') or {}
    checkpoint.pop('save_best', None)


def scale_learning_rate(cfg: Config) -> None:
    """Enable mmengine's linear scaling rule."""
    if not (cfg.get('auto_scale_lr') or {}).get('base_batch_size'):
        raise SettingError(
            '--auto-scale-lr needs auto_scale_lr.base_batch_size in the '
            'config: set it to the batch size of its learning rate.'
        )
    cfg.auto_scale_lr.enable = True


def check_test(cfg: Config) -> None:
    """Raise if the config has no test."""
    if cfg.get('test_dataloader') is None or cfg.get('test_evaluator') is None:
        raise SettingError(
            'The config has no test_dataloader or no test_evaluator: add '
            'them, for example test_dataloader = val_dataloader.'
        )


def add_metrics(cfg: Config, choices: list[str], split: str) -> None:
    """Add metrics to the evaluator of ``val`` or ``test``.

    With any choice IoUMetric also gives the IoU of every class. ``'tail'``
    adds the mIoU of frequent and rare classes, ``'foreground'`` the mIoU
    without the class background, the others add metrics.
    """
    if not choices:
        return
    metrics = as_list(cfg.get(f'{split}_evaluator'))
    for metric in metrics:
        if registered_name(metric) in IOU_METRICS[:2]:
            metric['type'] = IOU_METRICS[2 if 'tail' in choices else 1]
        if registered_name(metric) in IOU_METRICS and 'foreground' in choices:
            metric.setdefault('exclude', ['background'])
    for choice, name in ADDED_METRICS.items():
        if choice in choices and name not in map(registered_name, metrics):
            metrics.append({'type': name})
    cfg[f'{split}_evaluator'] = metrics
    add_hook(cfg, 'TrainingCountsHook')


def keep_predictions(cfg: Config, output_dir: str) -> None:
    """Make the metric of the IoU write the predictions."""
    for metric in as_list(cfg.test_evaluator):
        if registered_name(metric) in IOU_METRICS:
            metric['output_dir'] = output_dir
            return
    raise SettingError(
        f'--out {output_dir} needs IoUMetric in test_evaluator, which writes '
        'the predictions.'
    )


def show_predictions(
    cfg: Config, show: bool, show_dir: str | None, wait_time: float
) -> None:
    """Make upstream's visualisation hook draw every prediction."""
    hook = (cfg.get('default_hooks') or {}).get('visualization')
    if hook is None:
        raise SettingError(
            '--show and --show-dir need default_hooks.visualization='
            "dict(type='SegVisualizationHook') in the config."
        )
    hook['draw'] = True
    if show:
        hook.update(show=True, wait_time=wait_time)
    if show_dir:
        cfg.visualizer['save_dir'] = show_dir
