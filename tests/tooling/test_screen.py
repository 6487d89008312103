"""The quiet screen, and what users are told before they resume."""

import logging

import pytest
from mmengine.config import Config
from mmengine.hooks import Hook
from mmengine.logging import MMLogger
from mmseg.registry import HOOKS

from mmseg_margin.tooling.screen import IGNORED_WARNINGS, replace_console
from tests.commands import output_of
from tests.small_training import write_config


def test_little_on_the_screen_and_everything_in_the_file(tmp_path, capsys):
    path = tmp_path / 'log'
    logger = MMLogger.get_instance(tmp_path.name, log_file=str(path))
    screen = replace_console(logger)
    table = '\n+---+\n| a |\n+---+'
    logging.getLogger('mmseg_margin').info('ours')
    for message in ('theirs', 'Iter(train) [1/2]', table):
        logger.info(message)
    for warning in ('a warning', *IGNORED_WARNINGS):
        logger.warning(warning)
    screen.shows_tables = True
    logger.info(table)
    shown = f'ours\nIter(train) [1/2]\na warning{table}\n'
    assert capsys.readouterr().out == shown
    text = path.read_text()
    for message in ('ours', 'theirs', 'a warning', *IGNORED_WARNINGS):
        assert message in text


@HOOKS.register_module()
class InterruptingHook(Hook):
    """Ctrl-C in the third iteration."""

    def after_train_iter(self, runner, *args, **kwargs) -> None:
        if runner.iter == 2:
            raise KeyboardInterrupt


@pytest.mark.parametrize(
    ('interval', 'sentence'),
    [
        (5, 'nothing was saved yet, so --resume begins at iteration 1.'),
        (2, '--resume goes on after iteration 2.'),
    ],
)
def test_ctrl_c_says_where_a_training_will_go_on(
    tmp_path, capsys, interval, sentence
):
    config = write_config(tmp_path / 'config.py', max_iters=4)
    cfg = Config.fromfile(config)
    cfg.default_hooks.checkpoint.interval = interval
    cfg.custom_hooks.append({'type': 'InterruptingHook'})
    cfg.dump(config)
    said = output_of(capsys, 'train', config, '--no-validate', code=130)
    assert f'Stopped by Ctrl-C: {sentence}' in said
    assert 'Traceback' not in said


def test_another_objective_is_warned_of(tmp_path, capsys, monkeypatch):
    """But not the same one, nor a fine-tuning."""
    monkeypatch.chdir(tmp_path)
    config = write_config(tmp_path / 'config.py', max_iters=2)

    def train(loss, max_iters, *flags, start='None'):
        options = [f'train_cfg.max_iters={max_iters}', f'load_from={start}']
        options.append(f'experiment_name={loss}{max_iters}')
        arguments = [config, '--loss', loss, '--no-validate', *flags]
        return output_of(
            capsys, 'train', *arguments, '--cfg-options', *options
        )

    train('ce', 2)
    said = train('lovasz', 4, '--resume')
    assert 'CrossEntropyLoss' in said.partition('was trained with')[2]
    assert 'was trained with' not in train('lovasz', 5, '--resume')
    start = tmp_path / 'iter_2.pth'
    assert 'was trained with' not in train('dice', 3, start=start)
