"""Shows the roles and directives of docstrings as Markdown."""

import re
from typing import Any

import griffe

ROLE = re.compile(r':\w+:`~?([^`]+)`')
EXAMPLE = re.compile(r'^Example:$', re.M)
MATHS = re.compile(r'^\.\. math:: *(.+)$', re.M)


class PlainDocstrings(griffe.Extension):
    """``:func:`name``` becomes code, a formula an indented block."""

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        if obj.docstring:
            text = ROLE.sub(r'`\1`', obj.docstring.value)
            text = EXAMPLE.sub('Examples:', text)
            obj.docstring.value = MATHS.sub(r'    \1', text)
