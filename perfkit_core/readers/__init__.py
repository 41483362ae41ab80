"""Readers of sources, with one module or package for each format, and the code that they have in common."""
