"""Names from outside, fit for a terminal, a log and a picture."""


def printable(text: str) -> str:
    r"""The text with control characters and the like written as escapes.

    Names of classes and files come with the data: they may hold line breaks
    that fake a line of a report, sequences that a terminal obeys, or bytes
    that cannot be printed at all.

    Example:
        >>> printable('road\x1b[2J')
        'road\\x1b[2J'
    """
    return ''.join(
        char if char.isprintable() else ascii(char)[1:-1] for char in text
    )


def drawable(text: str) -> str:
    """The same for matplotlib, to which dollars mean formulas."""
    return printable(text).replace('$', r'\$')
