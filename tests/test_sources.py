"""Rules for all source files: no executed data, no dead paths."""

import ast
import re
from pathlib import Path

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
# Files and folders of a clone that an installed package does not have.
ONLY_IN_A_CLONE = re.compile(r'\b(configs|docs|tests|tools)/|README|CHANGELOG')

TREES = {path: ast.parse(path.read_text('utf-8')) for path in SOURCES}
NODES = [(path, node) for path in SOURCES for node in ast.walk(TREES[path])]
CALLS = [
    (f'{path}:{node.lineno}', ast.unparse(node.func), ast.unparse(node))
    for path, node in NODES
    if isinstance(node, ast.Call)
]


def test_nothing_is_executed():
    """Torch loads only weights."""
    found = [(place, name) for place, name, _ in CALLS if name in FORBIDDEN]
    assert found == []
    loads = [text for _, name, text in CALLS if name == 'torch.load']
    assert loads
    assert [x for x in loads if 'weights_only=True' not in x] == []


def test_text_files_have_an_encoding():
    found = [
        f'{place} {text}'
        for place, name, text in CALLS
        if name.split('.')[-1] in READS_OR_WRITES_TEXT
        and name not in ('Image.open', 'tarfile.open', 'os.open')
        and not re.search(r"'[rwax+]*b[rwax+]*'|utf-8", text)
    ]
    assert found == []


def test_no_error_is_caught_wholesale():
    found = [
        f'{path}:{node.lineno}'
        for path, node in NODES
        if isinstance(node, ast.ExceptHandler)
        and path.name not in MAY_CATCH_EVERYTHING
        and (
            node.type is None
            or ast.unparse(node.type) in ('Exception', 'BaseException')
        )
        and not any(isinstance(inner, ast.Raise) for inner in node.body)
    ]
    assert found == []


def texts(path: Path) -> list[str]:
    """All strings of a file that are not docstrings."""
    nodes = [*ast.walk(TREES[path])]
    docstrings = [node.value for node in nodes if isinstance(node, ast.Expr)]
    return [
        node.value
        for node in nodes
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and node not in docstrings
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
