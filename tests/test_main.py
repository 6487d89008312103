"""``python -m mmseg_margin TOOL``, in a clone and after ``pip install``."""

from pathlib import Path

import pytest

from tests.commands import TOOLS, output_of_python
from tests.small_training import write_config

ROOT = TOOLS.parent
REQUIRED = {'train', 'test', 'class_stats', 'compare', 'mosaic'}
REQUIRED |= {'benchmark', 'fit_offsets', 'make_instrument_parts'}
OURS = 'light/deeplabv3plus_efficientnet-lite0_ce_1xb4-600_camvid-112x144.py'


def run_tool(folder: Path, path: Path, *arguments, code: int = 0) -> str:
    return output_of_python(
        folder,
        *('-m', 'mmseg_margin', *arguments),
        code=code,
        PYTHONPATH=str(path),
        XDG_CACHE_HOME=str(folder / 'cache'),
    )


def test_alone_or_with_a_typo_it_lists_all_tools(tmp_path, installed):
    alone = run_tool(tmp_path, installed)
    typo = run_tool(tmp_path, ROOT, 'trian', code=1)
    assert "error: there is no tool 'trian'. Did you mean train?" in typo
    for said in (alone, typo):
        listed = {line.split()[0] for line in said.splitlines() if line}
        assert listed > REQUIRED
        assert {file.stem for file in TOOLS.glob('*.py')} < listed


@pytest.mark.parametrize('name', sorted(REQUIRED))
def test_arguments_are_parsed_before_torch_is_imported(tmp_path, name):
    """So that help and mistakes are answered at once."""
    environment = {'PYTHONPATH': str(ROOT), 'PYTHONPROFILEIMPORTTIME': '1'}
    for start, argument, code in (
        (['-m', 'mmseg_margin', name], '--nonsense', 2),
        ([TOOLS / f'{name}.py'], '--help', 0),
    ):
        said = output_of_python(
            tmp_path, *start, argument, code=code, **environment
        )
        lines = (line.rpartition('|')[2] for line in said.splitlines())
        imported = {line.strip() for line in lines}
        assert 'argparse' in imported
        assert imported.isdisjoint({'torch', 'mmcv', 'mmseg'})
        assert 'usage: ' in said


def test_tools_of_an_installed_package(tmp_path, installed):
    """In a folder of its own, with no clone near."""
    config = write_config(tmp_path / 'config.py', max_iters=2)
    said = run_tool(tmp_path, installed, 'class_stats', config)
    assert 'rho_0k' in said
    flags = ['--no-validate', '--work-dir', 'w', '--loss', 'ce']
    run_tool(tmp_path, installed, 'train', config, *flags)
    assert (tmp_path / 'w' / 'iter_2.pth').is_file()
    # With a config of the package, whose data are not there.
    ours = f'mmseg_margin::{OURS}'
    said = run_tool(tmp_path, installed, 'class_stats', ours, code=1)
    assert 'data_root' in said
    # With helper modules of its own.
    said = run_tool(tmp_path, installed, 'benchmark', 'stage', '--help')
    assert 'usage: python -m mmseg_margin benchmark stage' in said
