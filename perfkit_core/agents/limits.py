"""Sizes of answers in bytes. The command line imports them, and little else."""

from __future__ import annotations

from typing import Final

DEFAULT: Final = 40_000
"""Default maximum size of an answer. It contains its document twice, with about 5,000 tokens each time."""
LEAST: Final = 4_000
MOST: Final = 10_000_000
