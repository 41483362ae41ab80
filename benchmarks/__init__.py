"""Benchmarks of perfkit against other tools for the same tasks: ``python -m benchmarks --help``."""
