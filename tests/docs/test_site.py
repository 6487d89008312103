"""The documentation builds without a warning and says what there is."""

import importlib
import re
from pathlib import Path

import pytest

from tests.commands import output_of_python

ROOT = Path(__file__).parents[2]
DOCS = ROOT / 'docs'
PACKAGES = ('functional', 'losses', 'hooks', 'stats', 'offsets', 'evaluation')
PACKAGES += ('models',)


@pytest.fixture(scope='module')
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The pages; a dead link or an unknown name fails the build."""
    pytest.importorskip('mkdocs', reason='needs mkdocs-material')
    folder = tmp_path_factory.mktemp('site')
    build = ['-m', 'mkdocs', 'build', '--strict', '--site-dir', folder]
    output_of_python(ROOT, *build, NO_MKDOCS_2_WARNING='1')
    return folder


def test_everything_exported_is_in_the_reference(site):
    pages = ''.join(path.read_text() for path in site.rglob('api/*/*.html'))
    documented = set(re.findall(r'id="mmseg_margin\.([\w.]+)"', pages))
    for package in PACKAGES:
        module = importlib.import_module(f'mmseg_margin.{package}')
        for name in module.__all__:
            if not callable(getattr(module, name)):
                continue  # a constant
            places = {f'{package}.{name}', f'{package}.{name}.{name}'}
            assert places & documented, f'{package}.{name}'


def test_no_page_needs_another_server(site):
    source = re.compile(r'<(?:script|img|iframe)[^>]* src="?(https?:[^" >]+)')
    styles = re.compile(r'<link[^>]* rel="?stylesheet"?[^>]*(https?:[^" >]+)')
    for path in site.rglob('*.html'):
        text = path.read_text()
        assert source.findall(text) + styles.findall(text) == [], path


def test_every_objective_has_its_section():
    from mmseg_margin.losses.objectives import OBJECTIVES

    text = (DOCS / 'losses.md').read_text('utf-8')
    headings = ', '.join(re.findall(r'^## (.+)$', text, re.M)).split(', ')
    assert set(OBJECTIVES) == set(headings) - {'Cost'}


def test_the_map_names_every_module():
    page = (DOCS / 'architecture.md').read_text('utf-8')
    modules = {
        path.stem
        for path in (ROOT / 'mmseg_margin').iterdir()
        if path.suffix == '.py' or (path / '__init__.py').exists()
    }
    assert [name for name in modules if f'`{name}`' not in page] == []


def test_the_pages_stay_short():
    pages = [p for p in DOCS.rglob('*.md') if 'results' not in p.parts]
    assert sum(path.stat().st_size for path in pages) <= 70_000
