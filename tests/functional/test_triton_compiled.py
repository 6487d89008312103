"""The Triton kernels, compiled for real GPUs and modelled."""

import re

import pytest

from tests.commands import TOOLS, output_of_python

pytest.importorskip('triton', reason='triton is not installed')


def test_registers_and_modelled_cost():
    """In a process of its own, because this one interprets kernels."""
    tool = TOOLS / 'benchmark.py', 'kernels'
    said = output_of_python(
        TOOLS.parent, *tool, TRITON_INTERPRET='0', COLUMNS='200'
    )
    registers = re.findall(r'(\d+) / (\d+) / \d+', said)
    assert len(registers) == 8 * 3 * 3 * 2
    assert max(int(used) for used, _ in registers) <= 128
    assert {spilled for _, spilled in registers} == {'0'}
    rows = re.findall(r'│ (\w[\w-]*) +│ +(\d+) │.*│ ([\d.]+) +│', said)
    for loss, most in (('margin', 3), ('jaccard', 6)):
        found = [row for row in rows if row[0] == loss]
        assert len(found) >= 2
        for _, launches, share in found:
            assert int(launches) <= most
            assert float(share) <= 0.08
