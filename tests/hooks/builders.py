"""A real Runner around a very small model, and losses that remember."""

import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from mmengine.hooks import Hook
from mmengine.runner import Runner
from mmseg.datasets.transforms import LoadAnnotations
from mmseg.registry import MODELS, TRANSFORMS
from torch import nn

import mmseg_margin  # noqa: F401  (registers hook and losses)
from tests.stats.builders import CountingBackend


class LabelsReadHook(Hook):
    """How many labels had been read when the training began."""

    priority = 'VERY_LOW'
    before_training: int | None = None

    def before_run(self, runner: Runner) -> None:
        CountingBackend.read.clear()

    def before_train(self, runner: Runner) -> None:
        self.before_training = len(CountingBackend.read)


@TRANSFORMS.register_module()
class FaultyLoader(LoadAnnotations):
    """Fails on one label, in a way that no bad file explains."""

    def transform(self, results: dict) -> dict:
        if results['seg_map_path'].endswith('0001.png'):
            raise NotImplementedError('a fault in the code, not in a file')
        return super().transform(results)


@MODELS.register_module()
class OneConv(nn.Module):
    """The smallest backbone there is."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, stride=2, padding=1)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor]:
        return (self.conv(x),)


@MODELS.register_module()
class CountingLoss(nn.Module):
    """Cross-entropy that accepts counts and has a running state."""

    loss_name = 'loss_counting'

    def __init__(self, tau: float = 5.0, upsilon: float = 2.0) -> None:
        super().__init__()
        self.tau = tau
        self.upsilon = upsilon
        self.counts: list[int] | None = None
        self.steps = 0.0

    def set_class_counts(self, counts: Sequence[int]) -> None:
        self.counts = list(counts)

    def training_state(self) -> dict[str, list[float]]:
        return {'steps': [self.steps]}

    def load_training_state(self, state: dict[str, list[float]]) -> None:
        (self.steps,) = state['steps']

    def forward(self, cls_score, label, weight=None, ignore_index=255):
        self.steps += 1
        return nn.functional.cross_entropy(
            cls_score, label, ignore_index=ignore_index
        )


def head(loss: Any, **kwargs: Any) -> dict[str, Any]:
    """A head of one convolution for the four classes of the test set."""
    return {
        'type': 'FCNHead',
        'in_channels': 4,
        'channels': 4,
        'num_convs': 0,
        'concat_input': False,
        'num_classes': 4,
        'loss_decode': loss,
        **kwargs,
    }


def dataset_config(root: Path, **kwargs: Any) -> dict[str, Any]:
    """The data set of ``tests.stats.builders.write_set``."""
    return {
        'type': 'BaseSegDataset',
        'data_root': str(root),
        'img_suffix': '.png',
        'data_prefix': {'img_path': 'img', 'seg_map_path': 'ann'},
        'metainfo': {'classes': ('sky', 'road', 'tree', 'car')},
        'pipeline': [
            {'type': 'LoadImageFromFile'},
            {
                'type': 'LoadAnnotations',
                'backend_args': {'backend': 'counting'},
            },
            {'type': 'PackSegInputs'},
        ],
        **kwargs,
    }


def make_runner(
    root: Path,
    work_dir: Path,
    loss: Any = None,
    hook: dict[str, Any] | None = None,
    model: dict[str, Any] | None = None,
    max_iters: int = 2,
    **kwargs: Any,
) -> Runner:
    """A Runner for two iterations; ``model`` replaces parts of the model."""
    loss = loss or {'type': 'CountingLoss'}
    hook = {'type': 'ClassStatsHook', **(hook or {})}
    hook.setdefault('cache_dir', str(work_dir / 'cache'))
    dataset = kwargs.pop('dataset', None) or dataset_config(root)
    return Runner(
        model={
            'type': 'EncoderDecoder',
            'data_preprocessor': {
                'type': 'SegDataPreProcessor',
                'size': (32, 48),
            },
            'backbone': {'type': 'OneConv'},
            'decode_head': head(loss),
            **(model or {}),
        },
        work_dir=str(work_dir),
        train_dataloader={
            'batch_size': 2,
            'num_workers': 0,
            'dataset': dataset,
            'sampler': {'type': 'InfiniteSampler'},
        },
        train_cfg={'type': 'IterBasedTrainLoop', 'max_iters': max_iters},
        optim_wrapper={'optimizer': {'type': 'SGD', 'lr': 0.01}},
        default_hooks={
            'checkpoint': {
                'type': 'CheckpointHook',
                'by_epoch': False,
                'interval': 1,
            }
        },
        custom_hooks=[hook, LabelsReadHook()],
        default_scope='mmseg',
        # mmengine keeps loggers and message hubs by this name.
        experiment_name=f'hook_test_{uuid.uuid4().hex}',
        **kwargs,
    )


def labels_read(runner: Runner) -> int | None:
    """How many labels were read before the first iteration."""
    (hook,) = (x for x in runner.hooks if isinstance(x, LabelsReadHook))
    return hook.before_training


def log_of(runner: Runner) -> str:
    """The text of the log file."""
    (path,) = Path(runner.log_dir).glob('*.log')
    return path.read_text()


def losses(model: nn.Module, kind: type = CountingLoss) -> list[Any]:
    """The losses of a kind, wherever they are."""
    return [x for x in model.modules() if isinstance(x, kind)]
