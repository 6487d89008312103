"""The errors that a person can mend: the tools show them as one sentence.

Everything else that is raised keeps its traceback, because it is a defect,
or comes out of code that is not ours.
"""


class MarginError(Exception):
    """Base of all errors that this package raises on purpose."""


class SettingError(MarginError, ValueError):
    """An argument or a setting that cannot work, with the remedy."""


class DataSetError(MarginError, ValueError):
    """A data set that cannot be trained on, with the reasons."""


class MissingFileError(MarginError, FileNotFoundError):
    """A file or folder that is not where it was said to be."""


class MissingPackageError(MarginError, ImportError):
    """An optional package that is not installed, with the command for it."""
