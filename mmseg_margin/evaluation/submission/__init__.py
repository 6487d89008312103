"""Submissions to the servers that keep the labels of a test split."""

from .folder import SubmissionFolder
from .formats import FORMATS, SubmissionError, SubmissionFormat, find_format
from .make import make_submission
from .submission_metric import SubmissionMetric

__all__ = [
    'FORMATS',
    'SubmissionError',
    'SubmissionFolder',
    'SubmissionFormat',
    'SubmissionMetric',
    'find_format',
    'make_submission',
]
