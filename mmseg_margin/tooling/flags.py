"""What the flags of ``tools/train.py`` and ``test.py`` do to a config."""

import inspect
from pathlib import Path

from mmengine.config import Config
from mmseg.registry import METRICS

from mmseg_margin.errors import MissingFileError, SettingError
from mmseg_margin.walks import add_hook, registered_name

METRIC_CHOICES = ('tail', 'bound', 'gap', 'cityscapes')


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


def check_test(cfg: Config) -> None:
    """Stop early if there is nothing to test, or no checkpoint."""
    if cfg.get('test_dataloader') is None or cfg.get('test_evaluator') is None:
        raise SettingError(
            'The config has no test_dataloader or no test_evaluator: add '
            'them, for example test_dataloader = val_dataloader.'
        )
    is_url = '://' in cfg.load_from
    if not is_url and not Path(cfg.load_from).is_file():
        raise MissingFileError(
            f'The checkpoint {cfg.load_from} does not exist: give the path '
            'to a .pth file, for example from the work dir of a training.'
        )


def metric_configs(cfg: Config) -> list[dict]:
    """The test evaluator as a list, which is also put into ``cfg``."""
    evaluator = cfg.test_evaluator
    cfg.test_evaluator = (
        evaluator if isinstance(evaluator, list) else [evaluator]
    )
    return cfg.test_evaluator


def add_metrics(cfg: Config, choices: list[str]) -> None:
    """Measure more than the config says, on any config.

    Args:
        cfg: Changed in place.
        choices: ``'tail'`` turns IoUMetric into TailIoUMetric, ``'bound'``
            adds MarginBoundMetric, ``'gap'`` adds it and its figures on the
            training set, ``'cityscapes'`` adds CityscapesScoresMetric.
    """
    metrics = metric_configs(cfg)
    present = {registered_name(metric) for metric in metrics}
    if 'tail' in choices:
        for metric in metrics:
            if registered_name(metric) == 'IoUMetric':
                metric['type'] = 'TailIoUMetric'
    wanted = []
    if {'bound', 'gap'} & {*choices}:
        wanted.append('MarginBoundMetric')
    if 'cityscapes' in choices:
        wanted.append('CityscapesScoresMetric')
    metrics += [{'type': name} for name in wanted if name not in present]
    if 'gap' in choices:
        add_hook(cfg, 'GeneralisationGapHook')


def keep_predictions(cfg: Config, output_dir: str) -> None:
    """Let the first metric that can write predictions write them."""
    for metric in metric_configs(cfg):
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
        hook['show'] = True
        hook['wait_time'] = wait_time
    if show_dir:
        cfg.visualizer['save_dir'] = show_dir
