"""What users see when an error ends a run."""

import re
import signal
import traceback

import pytest
from mmseg.registry import TRANSFORMS
from torch.utils.data import DataLoader
from torch.utils.data._utils import signal_handling

from mmseg_margin.errors import SettingError
from mmseg_margin.tooling.cli import report_errors
from tests.commands import TOOLS, load_tool, output_of, output_of_python
from tests.small_training import PLAIN, write_config

KILLED = """
import os, signal
from mmseg.registry import TRANSFORMS
from torch.utils.data import get_worker_info

@TRANSFORMS.register_module()
class Killed:
    calls = 0

    def __call__(self, results):
        self.calls += get_worker_info() is not None
        if self.calls == 4:  # as the kernel does when memory is short
            os.kill(os.getpid(), signal.SIGKILL)
        return results
"""
DEPTH = """
from mmseg.registry import TRANSFORMS

@TRANSFORMS.register_module()
class AddDepth:
    def __call__(self, results):
        return results['depth']
"""


def prepare(folder, transform='', module='', text='', num_workers=0, hooks=()):
    """Arguments of a training, with a transform of the user's own."""
    pipeline, imports = [*PLAIN], ['mmseg_margin']
    if module:
        (folder / f'{module}.py').write_text(text)
        pipeline.insert(2, {'type': transform})
        imports.append(module)
    config = write_config(
        folder / 'config.py',
        pipeline=tuple(pipeline),
        custom_imports={'imports': imports},
        custom_hooks=list(hooks),
    )
    flags = ['--loss', 'ce', '--no-validate', '--cfg-options']
    return [config, *flags, f'train_dataloader.num_workers={num_workers}']


def test_a_killed_loader_gets_one_sentence(tmp_path, record_property):
    """Whether torch or the broken connection is first to report it."""
    arguments = prepare(tmp_path, 'Killed', 'killed_loader', KILLED, 2)
    path = f'.:{TOOLS.parent}'
    said = output_of_python(
        tmp_path, TOOLS / 'train.py', *arguments, PYTHONPATH=path, code=1
    )
    message = r'error: DataLoader worker .*\. Usually .* lower num_workers'
    assert re.search(message, said), said[-3000:]
    assert 'Traceback' not in said
    assert 'lost sys.stderr' not in said
    record_property('kills of a data loader', 1)


def fail(error):
    raise error


class Unreadable:
    """A sample that raises an error where the loader unpickles it."""

    def __init__(self, error):
        self.error = error

    def __reduce__(self):
        return fail, (self.error,)


@pytest.mark.parametrize('in_worker', [False, True])
@pytest.mark.parametrize(
    'error', [ConnectionResetError(104, 'reset'), EOFError('at the end')]
)
def test_a_lost_connection_to_a_worker_is_a_killed_loader(
    capsys, torchs_handler, error, in_worker
):
    """One that the user's own code has lost keeps its traceback."""
    loader = DataLoader(
        [Unreadable(error)],
        batch_size=None,
        num_workers=1,
        multiprocessing_context='fork',  # which pickles no data set
        worker_init_fn=lambda _: fail(error) if in_worker else None,
    )
    read = report_errors(lambda: next(iter(loader)))
    with pytest.raises(type(error) if in_worker else SystemExit):
        read()
    message = 'error: DataLoader worker ended before it had sent its batch. U'
    assert (message in capsys.readouterr().err) != in_worker
    # A second worker that dies must not raise while the process ends.
    is_reset = signal.getsignal(signal.SIGCHLD) == signal.SIG_DFL
    assert is_reset != in_worker


@pytest.fixture
def torchs_handler():
    """Put back the handler that a killed loader takes away."""
    signal_handling._set_SIGCHLD_handler()
    handler = signal.getsignal(signal.SIGCHLD)
    yield
    signal.signal(signal.SIGCHLD, handler)


@pytest.mark.parametrize('num_workers', [0, 1])
def test_errors_of_users_show_their_line(tmp_path, monkeypatch, num_workers):
    module = f'depth{num_workers}'
    monkeypatch.syspath_prepend(str(tmp_path))
    arguments = prepare(tmp_path, 'AddDepth', module, DEPTH, num_workers)
    if num_workers:  # registered by the first
        monkeypatch.delitem(TRANSFORMS.module_dict, 'AddDepth', False)
    with pytest.raises(KeyError, match='depth') as caught:
        load_tool('train')['main']([*map(str, arguments)])
    shown = ''.join(traceback.format_exception(caught.value))
    assert f'{module}.py' in shown
    assert 'line 7' in shown


@pytest.mark.parametrize('num_workers', [0, 1])
def test_what_cannot_be_loaded_is_named(tmp_path, capsys, num_workers):
    """An image by the loader, if the label check has not stopped it."""
    check = {'type': 'ClassStatsHook', 'on_problem': 'warn'}
    arguments = prepare(tmp_path, num_workers=num_workers, hooks=[check])
    images = tmp_path / 'data' / 'img'
    for image in images.iterdir():
        image.write_bytes(b'')
    said = output_of(capsys, 'train', *arguments, code=1)
    message = f'error: The image {images}/.* is empty or damaged: copy'
    assert re.search(message, said)
    assert 'Traceback' not in said
    url = 'https://localhost:9/resnet50.pth'
    weights = f'load_from={url}'
    said = output_of(capsys, 'train', *arguments, weights, code=1)
    assert f'The weights {url} cannot be downloaded' in said
    assert 'model.pretrained=None' in said


@pytest.mark.parametrize(
    ('text', 'options', 'expected'),
    [
        (None, [], 'config.py does not exist'),
        ('a = = 1', [], 'cannot be read: '),
        ("_base_ = 'nowhere.py'", [], 'nowhere.py'),
        ('a = [1]', ['--cfg-options', 'a.7=2'], '--cfg-options'),
    ],
)
def test_configs_that_cannot_be_read(
    tmp_path, capsys, text, options, expected
):
    path = tmp_path / 'config.py'
    if text is not None:
        path.write_text(text)
    said = output_of(capsys, 'train', path, *options, code=1)
    assert expected in said


def run(capsys, error):
    """What is printed when a tool raises this."""

    @report_errors
    def main() -> None:
        raise error

    with pytest.raises(SystemExit) as caught:
        main()
    assert caught.value.code == 1
    return capsys.readouterr().err


def test_our_errors_and_accidents_become_sentences(capsys, torchs_handler):
    assert 'error: tau=-3\n' in run(capsys, SettingError('tau=-3'))
    full = run(capsys, OSError(28, 'No space left on device'))
    assert 'No space left on device: free some space' in full
    # mmengine takes whatever stops its formatting for a mistake in the config.
    wrong = SyntaxError('Failed to format the config file')
    wrong.__cause__ = RuntimeError('DataLoader worker (pid 7) is killed. ')
    said = run(capsys, wrong)
    assert 'error: DataLoader worker (pid 7) is killed. Usually' in said
    assert 'config file' not in said
    wrong.__cause__ = KeyboardInterrupt()
    assert 'config file' not in run(capsys, wrong)
    assert 'stopped by Ctrl-C' in run(capsys, KeyboardInterrupt())
    for error in (KeyError, ValueError, ImportError, OSError, RuntimeError):
        with pytest.raises(error, match='not ours'):
            run(capsys, error('not ours'))
