"""A target of the attack: one kind of input, and the code that must take or refuse it."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Sequence

from tests.fuzz.mutation import mutated


class FindingError(Exception):
    """An input was handled wrongly. Any other exception of a target that is no PerfkitError is a finding, too."""


class Target(ABC):
    """Input is generated from ``chance`` alone, so a seed repeats it."""

    name: str

    @property
    @abstractmethod
    def seeds(self) -> Sequence[bytes]:
        """Return valid inputs, from which others are made."""

    @abstractmethod
    def run(self, data: bytes) -> bool:
        """Handle an input. Return whether it was accepted. Raises an exception if it was handled wrongly."""

    def make(self, chance: random.Random) -> bytes:
        """Return a new input."""
        return mutated(chance.choice(self.seeds), chance)

    def end(self) -> None:  # noqa: B027
        """Check what was collected from all inputs so far. Raises an exception if it is wrong."""
