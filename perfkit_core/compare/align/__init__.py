"""Alignment of two runs: which layers, operators and device work correspond to each other."""
