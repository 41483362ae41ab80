"""What is taken of a finished cycle while training waits, and what may be done with it later."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from perfkit_core.trace import Trace


@dataclass(frozen=True, slots=True)
class Taken:
    """A finished cycle that no longer needs its profiler.

    ``finish()`` makes the Trace, once. ``background`` says that it may do so in another thread while the training and
    the next cycle go on; else it is finished before the training goes on.
    """

    finish: Callable[[], Trace]
    background: bool = True

    def then(self, change: Callable[[Trace], Trace]) -> Taken:
        """The same, with ``change`` made to the Trace."""
        return Taken(lambda: change(self.finish()), self.background)
