"""Run commands as users do, in this process or in a new one."""

import functools
import os
import runpy
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

TOOLS = Path(__file__).parents[1] / 'tools'


@functools.cache
def load_tool(name: str) -> dict[str, Any]:
    """The global names of a tool's file, with their values."""
    return runpy.run_path(str(TOOLS / f'{name}.py'))


def call(
    capsys: pytest.CaptureFixture, tool: str, *arguments: Any
) -> tuple[int, str]:
    """Run a tool in this process; return its exit code and output."""
    capsys.readouterr()
    code: Any = 0
    try:
        load_tool(tool)['main']([str(argument) for argument in arguments])
    except SystemExit as stop:
        code = stop.code
    captured = capsys.readouterr()
    return code, captured.out + captured.err


def output_of(
    capsys: pytest.CaptureFixture, tool: str, *arguments: Any, code: int = 0
) -> str:
    """Run a tool in this process, which has to exit with ``code``."""
    found, said = call(capsys, tool, *arguments)
    assert found == code, said[-3000:]
    return said


def run(
    command: Sequence[Any], folder: Path, **environment: str
) -> tuple[int, str]:
    """Run a command in a new process; return its exit code and output."""
    process = subprocess.run(
        [str(part) for part in command],
        cwd=folder,
        env=os.environ | {'OMP_NUM_THREADS': '1'} | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=300,
        check=False,
    )
    return process.returncode, process.stdout


def run_python(
    folder: Path, *arguments: Any, **environment: str
) -> tuple[int, str]:
    return run([sys.executable, *arguments], folder, **environment)


def output_of_python(
    folder: Path, *arguments: Any, code: int = 0, **environment: str
) -> str:
    """Run Python in a new process, which has to exit with ``code``."""
    found, said = run_python(folder, *arguments, **environment)
    assert found == code, said[-3000:]
    return said


def free_port() -> str:
    with socket.socket() as free:
        free.bind(('127.0.0.1', 0))
        return str(free.getsockname()[1])
