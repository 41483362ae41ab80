"""In which order are the commands run? In rounds that balance drift: each half of a round mirrors the other.

A machine that grows slower (heat, other people) makes what is run later look worse. In a round of base, change, change,
base a steady drift hits both alike; which of the two begins is drawn for every round.
"""

from __future__ import annotations

import random
from typing import Final, Literal

Side = Literal["base", "change"]

SEED: Final = 20_201
"""The same order in every verification, so that two of them compare."""
_ROUNDS: Final[tuple[tuple[Side, ...], ...]] = (
    ("base", "change", "change", "base"),
    ("change", "base", "base", "change"),
)
PER_ROUND: Final = 2
"""Runs of each side in a round."""


def order(rounds: int) -> list[tuple[Side, ...]]:
    """The sides of each round, in the order in which they run."""
    draw = random.Random(SEED)
    return [draw.choice(_ROUNDS) for _ in range(rounds)]
