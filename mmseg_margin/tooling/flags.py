"""Edits of a config for the flags of the tools train and test."""

import inspect
from pathlib import Path

from mmengine.config import Config
from mmseg.registry import METRICS

from mmseg_margin.checkpoints import newest_whole_checkpoint
from mmseg_margin.config_tools import add_hook, as_list, registered_name
from mmseg_margin.errors import MissingFileError, SettingError

ADDED_METRICS = {
    'bound': 'MarginBoundMetric',
    'cityscapes': 'CityscapesScoresMetric',
}
METRIC_CHOICES = ('tail', 'foreground', *ADDED_METRICS)
PER_CLASS, TAIL = 'PerClassIoUMetric', 'TailIoUMetric'


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


def resume_training(cfg: Config) -> None:
    """Resume from the last checkpoint in the work dir, if there is one.

    As in upstream, a ``load_from`` of the config is resumed instead.
    """
    if not cfg.get('load_from'):
        cfg.load_from = newest_whole_checkpoint(cfg.work_dir)
        cfg.resume = cfg.load_from is not None


def check_test(cfg: Config) -> None:
    """Raise if the config has no test, or the checkpoint is missing."""
    if cfg.get('test_dataloader') is None or cfg.get('test_evaluator') is None:
        raise SettingError(
            'The config has no test_dataloader or no test_evaluator: add '
            'them, for example test_dataloader = val_dataloader.'
        )
    if '://' not in cfg.load_from and not Path(cfg.load_from).is_file():
        raise MissingFileError(
            f'The checkpoint {cfg.load_from} does not exist: give the path '
            'to a .pth file, for example from the work dir of a training.'
        )


def add_metrics(cfg: Config, choices: list[str], split: str) -> None:
    """Add metrics to the evaluator of ``val`` or ``test``.

    With any choice IoUMetric also gives the IoU of every class. ``'tail'``
    adds the mIoU of frequent and rare classes, ``'foreground'`` the mIoU
    without the class background, and the others add metrics.
    """
    if not choices:
        return
    metrics = as_list(cfg.get(f'{split}_evaluator'))
    for metric in metrics:
        name = registered_name(metric)
        if name in ('IoUMetric', PER_CLASS, TAIL):
            is_tail = 'tail' in choices or name == TAIL
            metric['type'] = TAIL if is_tail else PER_CLASS
            if 'foreground' in choices:
                metric.setdefault('exclude', ['background'])
    for choice, name in ADDED_METRICS.items():
        if choice in choices and name not in map(registered_name, metrics):
            metrics.append({'type': name})
    cfg[f'{split}_evaluator'] = metrics
    add_hook(cfg, 'TrainingCountsHook')


def keep_predictions(cfg: Config, output_dir: str) -> None:
    """Make the first metric that can write predictions write them."""
    for metric in as_list(cfg.test_evaluator):
        kind = metric['type']
        built = METRICS.get(kind) if isinstance(kind, str) else kind
        parameters = inspect.signature(built.__init__).parameters
        if issubclass(built, METRICS.get('IoUMetric')) or (
            'output_dir' in parameters
        ):
            metric['output_dir'] = output_dir
            # By default upstream's CityscapesMetric removes the folder.
            if 'keep_results' in parameters:
                metric['keep_results'] = True
            return
    raise SettingError(
        f'--out {output_dir}: no metric in test_evaluator writes predictions; '
        'add one, for example IoUMetric.'
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
