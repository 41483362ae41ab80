"""Compilation with numba, and parallel threads."""
