"""Matching of recorded operators to a program whose independent operators ran in any order, in several threads.

Operators are distinguished by their times. An operator begins after all operators that make its inputs, directly or
indirectly, have ended. So a recorded operator can be an operator of the program only if, for each name, enough recorded
operators ended before it and enough began after it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from perfkit_core.algorithms.arrays import BoolArray, IntArray
from perfkit_paddle.program_shapes import Program, each

MOST: Final = 1000
"""Number of operators of a name up to which their times are compared, in about 0.1 s."""


UNCERTAIN: Final = -1


class Order:
    """How many operators of each name must run before and after each operator of a program. ``names[n]`` are the
    indices of the operators with name ``n``. The arrays ``before[n]`` and ``after[n]`` have the shape (operators,)."""

    def __init__(self, program: Program) -> None:
        self.names: dict[str, list[int]] = {}
        for number, operator in enumerate(program.operators):
            self.names.setdefault(operator.name, []).append(number)
        maker = {
            tensor: number for number, operator in enumerate(program.operators) for tensor in each(operator.results)
        }
        makers = [{maker[item] for item in each(operator.inputs) if item in maker} for operator in program.operators]
        # The operators before and after each operator, as bits of integers.
        earlier, later = [0] * len(makers), [0] * len(makers)
        for number, direct in enumerate(makers):
            for source in direct:
                earlier[number] |= earlier[source] | 1 << source
        for number in reversed(range(len(makers))):
            for source in makers[number]:
                later[source] |= later[number] | 1 << number
        bits = {name: sum(1 << number for number in numbers) for name, numbers in self.names.items()}
        self.before = {name: np.array([(one & own).bit_count() for one in earlier]) for name, own in bits.items()}
        self.after = {name: np.array([(one & own).bit_count() for one in later]) for name, own in bits.items()}

    def distinguished(
        self, name: str, alike: Sequence[int], times: Mapping[str, tuple[IntArray, IntArray]]
    ) -> list[int]:
        """Return the kind of each recorded operator of a name, by time, or :data:`UNCERTAIN`.

        - ``alike``: the kind of each operator of this name in the program. Equal operators have the same kind, 0, 1, …
        - ``times``: start and end in ns of the recorded operators of each name, sorted by start. Names are left out if
          the program has another number of operators with this name."""
        kinds = np.array(alike)
        if len(kinds) > MOST:
            return [UNCERTAIN] * len(kinds)
        numbers = self.names[name]
        start, end = times[name]
        possible = np.ones((len(kinds), len(kinds)), np.bool_)
        for other, (starts, ends) in times.items():
            ended = np.searchsorted(np.sort(ends), start, "right")
            begun = len(starts) - np.searchsorted(starts, end, "left")
            possible &= self.before[other][numbers] <= ended[:, None]
            possible &= self.after[other][numbers] <= begun[:, None]
        counts = np.bincount(kinds)
        of_kind = np.stack([possible[:, kinds == kind].any(1) for kind in range(len(counts))], 1)
        _exclude(of_kind, counts)
        found: list[int] = np.where(of_kind.sum(1) == 1, of_kind.argmax(1), UNCERTAIN).tolist()
        return found


def _exclude(possible: BoolArray, counts: IntArray) -> None:
    """Remove kinds whose operators are all found, and keep only the kind that needs an event, until nothing changes.
    ``possible`` has the shape (events, kinds); there are ``counts[kind]`` operators of a kind."""
    before = -1
    while before != possible.sum():
        before = possible.sum()
        single = possible.sum(1) == 1
        complete = (possible & single[:, None]).sum(0) == counts
        possible[np.ix_(~single, complete)] = False
        for kind in np.flatnonzero(possible.sum(0) == counts):
            rows = possible[:, kind].copy()
            possible[rows] = False
            possible[rows, kind] = True
