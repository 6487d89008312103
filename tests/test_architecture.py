"""The rooms of ``docs/architecture.md``: imports go from later to earlier."""

import ast
from collections.abc import Iterator
from pathlib import Path

import mmseg_margin

PACKAGE = Path(mmseg_margin.__file__).parent
# Each may import what stands in the lines above its own.
LAYERS = (
    {'version', 'errors', 'terminal', 'atomic_write'},
    {'functional', 'walks', 'checkpoints', 'report', 'datasets', 'models'},
    {'compat'},
    {'stats'},
    {'losses', 'evaluation'},
    {'offsets'},
    {'safe_checkpoints', 'hooks'},
    {'tooling'},
    {'comparison'},
    {'tuning'},
    {'__init__'},
)
LAYER_OF = {room: i for i, layer in enumerate(LAYERS) for room in layer}


def test_every_room_is_on_the_map() -> None:
    found = {
        path.stem
        for path in PACKAGE.iterdir()
        if path.suffix == '.py' or (path / '__init__.py').exists()
    }
    assert found == LAYER_OF.keys()
    page = (PACKAGE.parent / 'docs' / 'architecture.md').read_text('utf-8')
    assert [room for room in found if f'`{room}' not in page] == []


def test_imports_go_one_way() -> None:
    wrong = [
        f'{file.relative_to(PACKAGE)} imports {room}'
        for file in PACKAGE.rglob('*.py')
        for room in rooms_imported_by(file)
        if LAYER_OF[room] >= LAYER_OF[room_of(file)]
    ]
    assert wrong == []


def test_the_mathematics_knows_nothing_of_mmseg() -> None:
    known = {
        name.partition('.')[0]
        for file in (PACKAGE / 'functional').glob('*.py')
        for name in modules_imported_by(file)
    }
    assert known.isdisjoint({'mmseg', 'mmengine', 'mmcv'})


def room_of(file: Path) -> str:
    return file.relative_to(PACKAGE).with_suffix('').parts[0]


def rooms_imported_by(file: Path) -> Iterator[str]:
    for name in modules_imported_by(file):
        package, _, rest = name.partition('.')
        room = rest.partition('.')[0]
        if package == PACKAGE.name and room not in ('', room_of(file)):
            yield room


def modules_imported_by(file: Path) -> Iterator[str]:
    """Absolute names of what is imported, anywhere in the file."""
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
