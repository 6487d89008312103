"""What users see when an error or Ctrl-C ends a run."""

import re
import traceback

import pytest
from mmseg.registry import TRANSFORMS

from mmseg_margin.errors import DataSetError, SettingError
from mmseg_margin.tooling.cli import report_errors
from tests.commands import load_tool, output_of
from tests.small_training import PLAIN, write_config

DEPTH = """
from mmseg.registry import TRANSFORMS

@TRANSFORMS.register_module()
class AddDepth:
    def __call__(self, results):
        return results['depth']
"""


def prepare(folder, num_workers, **settings):
    """Arguments of a training without a validation."""
    config = write_config(folder / 'config.py', **settings)
    flags = ['--loss', 'ce', '--no-validate', '--cfg-options']
    return [config, *flags, f'train_dataloader.num_workers={num_workers}']


@pytest.mark.parametrize('num_workers', [0, 1])
def test_errors_of_users_show_their_line(tmp_path, monkeypatch, num_workers):
    module = f'depth{num_workers}'
    (tmp_path / f'{module}.py').write_text(DEPTH)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(TRANSFORMS.module_dict, 'AddDepth', raising=False)
    arguments = prepare(
        tmp_path,
        num_workers,
        pipeline=(*PLAIN[:2], {'type': 'AddDepth'}, PLAIN[2]),
        custom_imports={'imports': ['mmseg_margin', module]},
        custom_hooks=[],
    )
    with pytest.raises(KeyError, match='depth') as caught:
        load_tool('train')['main']([*map(str, arguments)])
    shown = ''.join(traceback.format_exception(caught.value))
    assert f'{module}.py", line 7' in shown


@pytest.mark.parametrize('num_workers', [0, 1])
def test_a_damaged_image_is_named(tmp_path, capsys, num_workers):
    """By the loader, if the label check has not stopped it."""
    check = {'type': 'ClassStatsHook', 'on_problem': 'warn'}
    arguments = prepare(tmp_path, num_workers, custom_hooks=[check])
    images = tmp_path / 'data' / 'img'
    for image in images.iterdir():
        image.write_bytes(b'')
    said = output_of(capsys, 'train', *arguments, code=1)
    assert re.search(f'error: The image {images}/.* is empty or dam', said)
    assert 'Traceback' not in said


@pytest.mark.parametrize(
    ('error', 'cause', 'code', 'sentence'),
    [
        (SettingError('tau=-3'), None, 1, 'error: tau=-3'),
        (DataSetError('bad\nlabels'), None, 1, 'error: bad\nlabels'),
        (KeyboardInterrupt(), None, 130, 'Stopped by Ctrl-C.'),
        # mmengine takes it for a mistake in the config that it formats.
        (SyntaxError(), KeyboardInterrupt(), 130, 'Stopped by Ctrl-C.'),
    ],
)
def test_one_sentence_and_an_exit_code(capsys, error, cause, code, sentence):
    @report_errors
    @report_errors  # python -m mmseg_margin does so as well
    def main() -> None:
        try:
            if cause:
                raise cause
        finally:
            raise error

    with pytest.raises(SystemExit) as caught:
        main()
    assert caught.value.code == code
    assert capsys.readouterr().err == f'{sentence}\n'


def test_ctrl_c_while_a_config_is_read(tmp_path, capsys):
    path = tmp_path / 'config.py'
    path.write_text('raise KeyboardInterrupt')
    said = output_of(capsys, 'train', path, code=130)
    assert said.strip() == 'Stopped by Ctrl-C.'


@pytest.mark.parametrize('kind', [KeyError, ImportError, OSError])
def test_other_errors_keep_their_traceback(kind):
    @report_errors
    def main() -> None:
        raise kind('not ours')

    with pytest.raises(kind, match='not ours'):
        main()
