"""Runs the tools: ``python -m mmseg_margin TOOL [arguments]``."""

import ast
import runpy
import sys
from pathlib import Path

from .compat import packed_folder
from .errors import did_you_mean
from .tooling.cli import report_errors

COMMAND = 'python -m mmseg_margin'


@report_errors
def main() -> None:
    """Run the tool whose file has the name of the first argument."""
    tools = {path.stem: path for path in packed_folder('tools').glob('*.py')}
    name = sys.argv[1] if len(sys.argv) > 1 else '--help'
    if name not in tools:
        listing = '\n'.join(
            f'  {tool:<24}{_summary(path)}'
            for tool, path in sorted(tools.items())
        )
        print(f'usage: {COMMAND} TOOL [arguments]\n\n{listing}\n')
        print(f'{COMMAND} TOOL --help shows the arguments of a tool.')
        if name in ('-h', '--help'):
            return
        hint = did_you_mean(name, tools)
        raise SystemExit(f'error: there is no tool {name!r}.{hint}')
    path = tools[name]
    sys.argv = [f'{COMMAND} {name}', *sys.argv[2:]]
    sys.path.insert(0, str(path.parent))  # as Python does for a script
    runpy.run_path(str(path))['main']()


def _summary(path: Path) -> str:
    """The first line of a file's docstring, without running the file."""
    docstring = ast.get_docstring(ast.parse(path.read_text('utf-8')))
    return (docstring or '').partition('\n')[0]


if __name__ == '__main__':
    main()
