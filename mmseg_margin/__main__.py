"""Runs the tools: ``python -m mmseg_margin TOOL [arguments]``."""

import ast
import runpy
import sys

from .compat import packed_folder
from .errors import did_you_mean
from .tooling.cli import report_errors

COMMAND = 'python -m mmseg_margin'


@report_errors
def main() -> None:
    """Run the tool whose file has the name of the first argument."""
    tools = {path.stem: path for path in packed_folder('tools').glob('*.py')}
    name = sys.argv[1] if len(sys.argv) > 1 else '--help'
    if name in tools:
        path = tools[name]
        sys.argv = [f'{COMMAND} {name}', *sys.argv[2:]]
        sys.path.insert(0, str(path.parent))  # as Python does for a script
        runpy.run_path(str(path))['main']()
        return
    print(f'usage: {COMMAND} TOOL [arguments]\n')
    for tool, path in sorted(tools.items()):
        docstring = ast.get_docstring(ast.parse(path.read_text('utf-8')))
        print(f'  {tool:<24}{(docstring or "").partition(chr(10))[0]}')
    print(f'\n{COMMAND} TOOL --help shows the arguments of a tool.')
    if name not in ('-h', '--help'):
        hint = did_you_mean(name, tools)
        raise SystemExit(f'error: there is no tool {name!r}.{hint}')


if __name__ == '__main__':
    main()
