"""What users are told before they resume a training."""

import pytest
from mmengine.config import Config
from mmengine.hooks import Hook
from mmseg.registry import HOOKS

from tests.commands import output_of
from tests.small_training import write_config


@HOOKS.register_module()
class InterruptingHook(Hook):
    """Ctrl-C in the third iteration, or before the first one."""

    def __init__(self, phase: str) -> None:
        self.phase = phase

    def before_train(self, runner) -> None:
        if self.phase == 'start':
            raise KeyboardInterrupt

    def after_train_iter(self, runner, batch_idx, *args, **kwargs) -> None:
        if self.phase == 'training' and runner.iter == 2:
            raise KeyboardInterrupt


@pytest.mark.parametrize(
    ('phase', 'interval', 'sentence'),
    [
        ('start', 1, 'nothing was saved yet, so --resume begins at iter'),
        ('training', 5, 'nothing was saved yet, so --resume begins at iter'),
        ('training', 2, '--resume goes on after iteration 2.'),
    ],
)
def test_ctrl_c_says_where_a_training_will_go_on(
    tmp_path, capsys, phase, interval, sentence
):
    config = write_config(tmp_path / 'config.py', max_iters=4)
    cfg = Config.fromfile(config)
    cfg.default_hooks.checkpoint.interval = interval
    cfg.custom_hooks.append({'type': 'InterruptingHook', 'phase': phase})
    cfg.dump(config)
    said = output_of(capsys, 'train', config, '--no-validate', code=130)
    assert f'Stopped by Ctrl-C: {sentence}' in said
    assert 'Traceback' not in said


def test_another_objective_is_warned_of(tmp_path, capsys, monkeypatch):
    """But not the same one, nor a fine-tuning."""
    monkeypatch.chdir(tmp_path)
    settings = {'max_iters': 2, 'log_level': 'INFO'}
    config = write_config(tmp_path / 'config.py', **settings)

    def train(loss, *flags, options=()):
        name = f'experiment_name={loss}{len(flags)}{len(options)}'
        arguments = [config, '--loss', loss, '--no-validate', *flags]
        options = ['--cfg-options', name, *options]
        return output_of(capsys, 'train', *arguments, *options)

    train('ce')
    longer = ['train_cfg.max_iters=4']
    said = train('lovasz', '--resume', options=longer)
    assert 'Training iterations 3 to 4' in said
    assert 'was trained with' in said
    assert 'CrossEntropyLoss' in said.partition('was trained with')[2]
    said = train(
        'lovasz', '--resume', options=['train_cfg.max_iters=5', 'a=1']
    )
    assert 'Training iterations 5 to 5' in said
    assert 'was trained with' not in said
    tuned = [f'load_from={tmp_path}/iter_2.pth', 'a=1', 'b=1']
    assert 'was trained with' not in train('dice', options=tuned)
