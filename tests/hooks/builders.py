"""A real Runner around a very small model, and a loss that takes counts."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mmengine.runner import Runner
from mmseg.datasets.transforms import LoadAnnotations
from mmseg.registry import MODELS, TRANSFORMS
from torch import nn

from mmseg_margin.functional import OffsetSettings
from tests.small_training import HEAD, PLAIN, add_validation, training_config

COUNTING = {'type': 'CountingLoss'}
# What a Runner needs besides on a rank without a GPU.
ON_CPU = {
    'launcher': 'pytorch',
    'cfg': {
        'model_wrapper_cfg': {
            'type': 'MMDistributedDataParallel',
            'device_ids': None,
        }
    },
}


@TRANSFORMS.register_module()
class FaultyLoader(LoadAnnotations):
    """Fails on one label, in a way that no bad file explains."""

    def transform(self, results: dict) -> dict:
        if results['seg_map_path'].endswith('0001.png'):
            raise NotImplementedError('a fault in the code, not in a file')
        return super().transform(results)


@MODELS.register_module()
class CountingLoss(nn.Module):
    """Cross-entropy that accepts counts and has settings of offsets."""

    loss_name = 'loss_counting'
    offset_settings = OffsetSettings(tau=5.0, upsilon=2.0)
    counts: list[int] | None = None
    steps = 0

    def set_class_counts(self, counts: Sequence[int]) -> None:
        self.counts = list(counts)

    def forward(self, cls_score, label, weight=None, ignore_index=255):
        self.steps += 1
        return nn.functional.cross_entropy(
            cls_score, label, ignore_index=ignore_index
        )


class Wrapper(nn.Module):
    """Like DistributedDataParallel, which keeps the model in ``module``."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module


def head(loss: Any, **kwargs: Any) -> dict[str, Any]:
    """A head of one convolution for the four classes of the test set."""
    return {**HEAD, 'loss_decode': loss, **kwargs}


def make_runner(
    root: Path,
    work_dir: Path,
    loss: Any = COUNTING,
    hook: dict[str, Any] | None = None,
    model: dict[str, Any] | None = None,
    max_iters: int = 2,
    loader: str | dict[str, Any] = 'LoadAnnotations',
    validation: Path | None = None,
    **kwargs: Any,
) -> Runner:
    """A Runner for two iterations; ``model`` replaces parts of the model."""
    if isinstance(loader, str):
        loader = {'type': loader}
    pipeline = (PLAIN[0], loader, PLAIN[2])
    config = training_config(root, work_dir, max_iters, pipeline)
    config.pop('custom_imports')
    if validation is not None:
        add_validation(config, max_iters)
        config.val_dataloader.dataset.data_root = str(validation)
    stats = {'type': 'ClassStatsHook', 'cache_dir': f'{work_dir}/cache'}
    parts = {
        **config,
        'model': {**config.model, 'decode_head': head(loss), **(model or {})},
        'custom_hooks': [stats | (hook or {})],
        'log_level': 'INFO',
    }
    return Runner(**parts, **kwargs)


def log_of(runner: Runner) -> str:
    (path,) = Path(runner.log_dir).glob('*.log')
    return path.read_text()


def losses(model: nn.Module, kind: type = CountingLoss) -> list[Any]:
    """The losses of a kind, wherever they are."""
    return [x for x in model.modules() if isinstance(x, kind)]
