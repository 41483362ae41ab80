"""Alignment of two runs: their corresponding layers, operators and device work."""
