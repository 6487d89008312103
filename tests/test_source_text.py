"""What no linter checks in the source files."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SOURCES = [
    path
    for name in ('mmseg_margin', 'tools')
    for path in sorted((ROOT / name).rglob('*.py'))
]
# Files and folders of a clone that an installed package does not have.
ONLY_IN_A_CLONE = re.compile(r'\b(configs|docs|tests|tools)/|README|CHANGELOG')


def messages(tree: ast.AST) -> Iterator[str]:
    """All strings of a file that are not docstrings."""
    nodes = [*ast.walk(tree)]
    docstrings = [node.value for node in nodes if isinstance(node, ast.Expr)]
    for node in nodes:
        if isinstance(node, ast.Constant) and node not in docstrings:
            yield str(node.value)


def test_messages_name_no_file_that_is_not_installed():
    trees = {path: ast.parse(path.read_text('utf-8')) for path in SOURCES}
    shown = {path: [*messages(tree)] for path, tree in trees.items()}
    for path in (ROOT / 'mmseg_margin').rglob('templates/*'):
        shown[path] = [path.read_text('utf-8')]
    found = [
        f'{path}: {text}'
        for path, texts in shown.items()
        for text in texts
        if ONLY_IN_A_CLONE.search(text)
    ]
    assert found == []


def test_checkpoints_are_loaded_as_weights_only():
    calls = [
        ast.unparse(node)
        for path in SOURCES
        for node in ast.walk(ast.parse(path.read_text('utf-8')))
        if isinstance(node, ast.Call)
    ]
    loads = [call for call in calls if call.startswith('torch.load(')]
    assert loads
    assert [load for load in loads if 'weights_only=True' not in load] == []
