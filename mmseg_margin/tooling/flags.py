"""What the flags of ``tools/train.py`` and ``test.py`` do to a config."""

import inspect
from pathlib import Path

from mmengine.config import Config
from mmseg.registry import METRICS

from mmseg_margin.checkpoints import newest_whole_checkpoint
from mmseg_margin.config_tools import add_hook, as_list, registered_name
from mmseg_margin.errors import MissingFileError, SettingError

ADDED_METRICS = {
    'bound': 'MarginBoundMetric',
    'gap': 'MarginBoundMetric',
    'cityscapes': 'CityscapesScoresMetric',
}
METRIC_CHOICES = ('tail', *ADDED_METRICS)


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


def resume_training(cfg: Config) -> None:
    """Go on in the work dir, or begin if there is nothing to go on from.

    As upstream has it, a ``load_from`` of the config is resumed instead.
    """
    if not cfg.get('load_from'):
        cfg.load_from = newest_whole_checkpoint(cfg.work_dir)
        cfg.resume = cfg.load_from is not None


def check_test(cfg: Config) -> None:
    """Stop early if there is nothing to test, or no checkpoint."""
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


def add_metrics(cfg: Config, choices: list[str]) -> None:
    """Measure more than the config says, on any config.

    ``'tail'`` turns IoUMetric into TailIoUMetric, the others add metrics, and
    ``'gap'`` their figures on the training set.
    """
    metrics = as_list(cfg.test_evaluator)
    for metric in metrics:
        if 'tail' in choices and registered_name(metric) == 'IoUMetric':
            metric['type'] = 'TailIoUMetric'
    for choice, name in ADDED_METRICS.items():
        if choice in choices and name not in map(registered_name, metrics):
            metrics.append({'type': name})
    cfg.test_evaluator = metrics
    if 'gap' in choices:
        add_hook(cfg, 'GeneralisationGapHook')


def keep_predictions(cfg: Config, output_dir: str) -> None:
    """Let the first metric that can write predictions write them."""
    for metric in as_list(cfg.test_evaluator):
        kind = metric['type']
        built = METRICS.get(kind) if isinstance(kind, str) else kind
        parameters = inspect.signature(built.__init__).parameters
        if issubclass(built, METRICS.get('IoUMetric')) or (
            'output_dir' in parameters
        ):
            metric['output_dir'] = output_dir
            # Without it upstream's CityscapesMetric removes the folder.
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
    """Let upstream's visualisation hook draw every prediction."""
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
