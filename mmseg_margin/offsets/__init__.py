"""Offsets of the classes, fitted to a trained network."""

from .fit import fit_offsets

__all__ = ['fit_offsets']
