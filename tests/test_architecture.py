"""The layers of ``docs/architecture.md``: imports go from later to earlier."""

import ast
from collections.abc import Iterator
from pathlib import Path

import mmseg_margin

PACKAGE = Path(mmseg_margin.__file__).parent
# A module may import from the layers above its own line.
LAYERS = (
    {'version', 'errors', 'terminal', 'atomic_write', 'config_tools'},
    {'functional', 'heads', 'checkpoints', 'report', 'datasets', 'models'},
    {'compat'},
    {'patches'},
    {'stats'},
    {'losses', 'evaluation'},
    {'offsets'},
    {'safe_checkpoints', 'hooks'},
    {'tooling'},
    {'comparison'},
    {'tuning'},
    {'__init__', '__main__'},
)
LAYER_OF = {name: i for i, layer in enumerate(LAYERS) for name in layer}


def test_every_module_is_on_the_map() -> None:
    found = {
        path.stem
        for path in PACKAGE.iterdir()
        if path.suffix == '.py' or (path / '__init__.py').exists()
    }
    assert found == LAYER_OF.keys()
    page = (PACKAGE.parent / 'docs' / 'architecture.md').read_text('utf-8')
    assert [name for name in found if f'`{name}' not in page] == []


def test_imports_go_one_way() -> None:
    wrong = [
        f'{file.relative_to(PACKAGE)} imports {name}'
        for file in PACKAGE.rglob('*.py')
        for name in parts_imported_by(file)
        if LAYER_OF[name] >= LAYER_OF[part_of(file)]
    ]
    assert wrong == []


def test_the_mathematics_knows_nothing_of_mmseg() -> None:
    known = {
        name.partition('.')[0]
        for file in (PACKAGE / 'functional').glob('*.py')
        for name in modules_imported_by(file)
    }
    assert known.isdisjoint({'mmseg', 'mmengine', 'mmcv'})


def part_of(file: Path) -> str:
    return file.relative_to(PACKAGE).with_suffix('').parts[0]


def parts_imported_by(file: Path) -> Iterator[str]:
    for name in modules_imported_by(file):
        package, _, rest = name.partition('.')
        part = rest.partition('.')[0]
        if package == PACKAGE.name and part not in ('', part_of(file)):
            yield part


def modules_imported_by(file: Path) -> Iterator[str]:
    """Absolute names of all imports, also of those inside functions."""
    folder = (PACKAGE.name, *file.relative_to(PACKAGE).parent.parts)
    for node in ast.walk(ast.parse(file.read_text('utf-8'))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = folder[: len(folder) - node.level + 1] if node.level else ()
            module = '.'.join([*base, *filter(None, [node.module])])
            if module == PACKAGE.name:
                yield from (f'{module}.{alias.name}' for alias in node.names)
            else:
                yield module
