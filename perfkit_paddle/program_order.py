"""Matching of recorded operators to a program whose independent operators ran in any order, in several threads.

Operators are distinguished by their times. An operator begins after all operators that make its inputs, directly or
indirectly, have ended. So a recorded operator can be an operator of the program only if, for each name, enough recorded
operators ended before it and enough began after it."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Final
from weakref import WeakKeyDictionary

import numpy as np

from perfkit_core.base.algorithms.arrays import BoolArray, IntArray
from perfkit_paddle.program_shapes import Program, flat

MOST: Final = 1000
"""Number of operators of a name up to which their times are compared, in about 0.1 s."""
MOST_OPERATORS: Final = 20_000
"""Number of operators of a program up to which they are told apart. Counting takes about 1 s and 50 MB then, once for
each program, and grows with the square of the number."""
UNCERTAIN: Final = -1
_ONES: Final = np.array([byte.bit_count() for byte in range(256)], np.uint8)


class Order:
    """The order that a program demands. ``names[n]`` are the indices of the operators with name ``n``."""

    def __init__(self, program: Program) -> None:
        self.names: dict[str, list[int]] = {}
        for number, operator in enumerate(program.operators):
            self.names.setdefault(operator.name, []).append(number)
        self._column = {name: column for column, name in enumerate(self.names)}
        maker = {
            tensor: number for number, operator in enumerate(program.operators) for tensor in flat(operator.results)
        }
        self._makers = [
            {maker[item] for item in flat(operator.inputs) if item in maker} for operator in program.operators
        ]

    @functools.cached_property
    def _counts(self) -> tuple[IntArray, IntArray]:
        """How many operators of each name must run before and after each operator, shape (operators, names)."""
        users: list[set[int]] = [set() for _ in self._makers]
        for number, sources in enumerate(self._makers):
            for source in sources:
                users[source].add(number)
        order = range(len(users))
        return self._reached(order, self._makers), self._reached(order[::-1], users)

    def _reached(self, order: Sequence[int], direct: Sequence[set[int]]) -> IntArray:
        """Count the operators that ``direct`` leads to, directly or indirectly, by name. Operators come in ``order``
        after those that they lead to."""
        # Each operator is a bit. The bits of a name begin with a byte, so that they are counted in whole bytes.
        sizes = [-(-len(numbers) // 8) for numbers in self.names.values()]
        first = np.cumsum([0, *sizes[:-1]])
        bits = [(0, 0)] * len(direct)
        for begin, numbers in zip(first.tolist(), self.names.values(), strict=True):
            for nth, number in enumerate(numbers):
                bits[number] = begin + nth // 8, 1 << nth % 8
        reached = np.zeros((len(direct), sum(sizes)), np.uint8)
        for number in order:
            row = reached[number]
            for source in direct[number]:
                row |= reached[source]
                byte, bit = bits[source]
                row[byte] |= bit
        return np.stack([np.add.reduceat(_ONES[row], first, dtype=np.int32) for row in reached])

    def distinguished(
        self, name: str, alike: Sequence[int], times: Mapping[str, tuple[IntArray, IntArray]]
    ) -> list[int]:
        """Return the kind of each recorded operator of a name, by time, or :data:`UNCERTAIN`.

        - ``alike``: the kind of each operator of this name in the program. Equal operators have the same kind, 0, 1, …
        - ``times``: start and end in ns of the recorded operators of each name, sorted by start. Names are left out if
          the program has another number of operators with this name."""
        kinds = np.array(alike)
        if len(kinds) > MOST or len(self._makers) > MOST_OPERATORS:
            return [UNCERTAIN] * len(kinds)
        before, after = (counts[self.names[name]] for counts in self._counts)
        start, end = times[name]
        possible = np.ones((len(kinds), len(kinds)), np.bool_)
        for other, (starts, ends) in times.items():
            ended = np.searchsorted(np.sort(ends), start, "right")
            begun = len(starts) - np.searchsorted(starts, end, "left")
            possible &= before[:, self._column[other]] <= ended[:, None]
            possible &= after[:, self._column[other]] <= begun[:, None]
        counts = np.bincount(kinds)
        of_kind = np.stack([possible[:, kinds == kind].any(1) for kind in range(len(counts))], 1)
        _exclude(of_kind, counts)
        recorded_kinds: list[int] = np.where(of_kind.sum(1) == 1, of_kind.argmax(1), UNCERTAIN).tolist()
        return recorded_kinds


_ORDERS: Final[WeakKeyDictionary[Program, Order]] = WeakKeyDictionary()


def order_of(program: Program) -> Order:
    """Return the order of a program. It is kept as long as the program, which may run in many recorded cycles."""
    if program not in _ORDERS:
        _ORDERS[program] = Order(program)
    return _ORDERS[program]


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
