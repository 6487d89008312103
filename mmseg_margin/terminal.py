"""Escapes names from data sets for terminals, logs and pictures."""


def printable(text: str) -> str:
    r"""The text with unprintable characters written as escapes.

    Names of classes and files come from data sets: they may contain line
    breaks that forge a line of a report, control sequences of a terminal, or
    bytes that cannot be printed.

    Example:
        >>> printable('road\x1b[2J')
        'road\\x1b[2J'
    """
    return ''.join(
        char if char.isprintable() else ascii(char)[1:-1] for char in text
    )


def drawable(text: str) -> str:
    """The same for matplotlib, which renders text in dollars as formulas."""
    return printable(text).replace('$', r'\$')
