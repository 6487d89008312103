"""What users see when an error or Ctrl-C ends a run."""

import traceback

import pytest
from mmseg.registry import TRANSFORMS

from mmseg_margin.errors import DataSetError, SettingError
from mmseg_margin.tooling.cli import report_errors
from tests.commands import call, load_tool
from tests.small_training import PLAIN, write_config

DEPTH = """
from mmseg.registry import TRANSFORMS

@TRANSFORMS.register_module()
class AddDepth:
    def __call__(self, results):
        return results['depth']
"""


def test_errors_of_users_show_their_line(tmp_path, monkeypatch):
    """From a worker of the data loader too."""
    (tmp_path / 'depth.py').write_text(DEPTH)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(TRANSFORMS.module_dict, 'AddDepth', raising=False)
    config = write_config(
        tmp_path / 'config.py',
        pipeline=(*PLAIN[:2], {'type': 'AddDepth'}, PLAIN[2]),
        custom_imports={'imports': ['mmseg_margin', 'depth']},
        custom_hooks=[],
    )
    flags = [
        '--no-validate',
        '--cfg-options',
        'train_dataloader.num_workers=1',
    ]
    with pytest.raises(KeyError, match='depth') as caught:
        load_tool('train')['main']([str(config), *flags])
    shown = ''.join(traceback.format_exception(caught.value))
    assert 'depth.py", line 7' in shown


def in_a_worker(error):
    """As torch's data loader raises it again."""
    kind = f'{type(error).__module__}.{type(error).__name__}'
    return type(error)(f'Caught it in worker 0.\n{kind}: {error}\n')


@pytest.mark.parametrize(
    ('error', 'cause', 'code', 'sentence'),
    [
        (SettingError('tau=-3'), None, 1, 'error: tau=-3'),
        (in_a_worker(DataSetError('bad')), None, 1, 'error: bad'),
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


@pytest.mark.parametrize(
    ('arguments', 'meant'),
    [
        (('test', 'c.py', 'm.pth', '--tta', 'flp'), 'flip'),
        (('train', 'c.py', '--metrics', 'tail', 'bond'), 'bound'),
        (('train', 'c.py', '--launcher', 'pytorc'), 'pytorch'),
    ],
)
def test_typos(capsys, arguments, meant):
    code, said = call(capsys, *arguments)
    assert code == 2
    assert f'Did you mean {meant}?' in said
