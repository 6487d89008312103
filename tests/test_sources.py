"""Rules for all source files: no executed data, no dead paths."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SOURCES = sorted(
    path
    for name in ('mmseg_margin', 'tools')
    for path in (ROOT / name).rglob('*.py')
)
FORBIDDEN = {
    *('eval', 'exec', 'compile', '__import__'),
    *('pickle.load', 'pickle.loads', 'pickle.Unpickler', 'pickle.dump'),
    *('pickle.dumps', 'marshal.loads', 'shelve.open', 'yaml.load'),
    *('os.system', 'os.popen', 'np.load', 'numpy.load', 'joblib.load'),
}
# A GPU, its driver and its compiler can fail in any way.
# A kernel on an untried GPU, and a transform of the user's, may raise any.
MAY_CATCH_EVERYTHING = {'triton_check.py', 'samples.py'}
READS_OR_WRITES_TEXT = ('open', 'read_text', 'write_text')


def calls(path: Path) -> list[tuple[str, ast.Call]]:
    tree = ast.parse(path.read_text('utf-8'))
    nodes = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    return [(ast.unparse(node.func), node) for node in nodes]


def test_nothing_is_executed():
    found = [
        f'{path}:{node.lineno} {name}'
        for path in SOURCES
        for name, node in calls(path)
        if name in FORBIDDEN
    ]
    assert found == []


def test_torch_loads_only_weights():
    loads = [
        ast.unparse(node)
        for path in SOURCES
        for name, node in calls(path)
        if name == 'torch.load'
    ]
    assert loads
    assert [x for x in loads if 'weights_only=True' not in x] == []


def test_text_files_have_an_encoding():
    found = []
    for path in SOURCES:
        for name, node in calls(path):
            is_text = name.split('.')[-1] in READS_OR_WRITES_TEXT
            text = ast.unparse(node)
            binary = re.search(r"'[rwax+]*b[rwax+]*'", text)
            other = name in ('Image.open', 'tarfile.open', 'os.open')
            if is_text and not (binary or other or 'utf-8' in text):
                found.append(f'{path}:{node.lineno} {text}')
    assert found == []


@pytest.mark.parametrize('name', ['Exception', 'BaseException', None])
def test_no_error_is_caught_wholesale(name):
    found = []
    for path in SOURCES:
        if path.name in MAY_CATCH_EVERYTHING:
            continue
        for node in ast.walk(ast.parse(path.read_text('utf-8'))):
            if isinstance(node, ast.ExceptHandler):
                caught = node.type and ast.unparse(node.type)
                reraises = any(isinstance(x, ast.Raise) for x in node.body)
                if caught == name and not reraises:
                    found.append(f'{path}:{node.lineno}')
    assert found == []


# Files and folders of a clone that an installed package does not have.
ONLY_IN_A_CLONE = re.compile(r'\b(configs|docs|tests|tools)/|README|CHANGELOG')


def texts(path: Path) -> list[str]:
    """All strings of a file that are not docstrings."""
    tree = ast.parse(path.read_text('utf-8'))
    docstrings = {
        id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)
    }
    return [
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and id(node) not in docstrings
    ]


def test_messages_name_no_file_that_is_not_installed():
    templates = (ROOT / 'mmseg_margin').rglob('templates/*')
    shown = {path: texts(path) for path in SOURCES}
    shown |= {path: [path.read_text('utf-8')] for path in templates}
    found = [
        f'{path}: {text}'
        for path, strings in shown.items()
        for text in strings
        if ONLY_IN_A_CLONE.search(text)
    ]
    assert found == []
