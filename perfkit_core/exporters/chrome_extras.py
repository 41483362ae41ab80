"""What a viewer draws besides the events: arrows, memory curves, marks of the steps.

Arrows lead from a launch to each piece of device work, and from a forward operator to its backward node. Every arrow
has both ends, with an id of its own; one that would lead back in time (clocks that disagree) is not drawn.
All of it repeats what the events say: the categories begin with ``perfkit.``, and perfkit's reader skips them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from perfkit_core.algorithms.arrays import NO_ROW, IntArray
from perfkit_core.exporters.json_lines import TextMember, joined, microseconds, number_member, objects, quoted
from perfkit_core.exporters.lanes import Lanes
from perfkit_core.model.schema import BACKWARD, MEMORY, OPERATOR_KINDS, STEP
from perfkit_core.model.trace import Trace

OWN_CATEGORY: Final = "perfkit."
"""Categories of events that perfkit added for the viewer begin with it."""

_UNKNOWN: Final = np.iinfo(np.int64).min


@dataclass(frozen=True, slots=True)
class Extra:
    """Events of one kind: each stands at the ``position`` (ascending) of the row that it hangs on."""

    position: IntArray
    lines: Callable[[IntArray], pa.Array]

    def between(self, begin: int, end: int) -> IntArray:
        """Indices of those at positions begin ≤ p < end."""
        return np.arange(*np.searchsorted(self.position, (begin, end)))


def extras(trace: Trace, found: Lanes, base: int, position: IntArray) -> list[Extra]:
    """Everything to draw; ``position`` is the place of each row in the file, shape (rows,)."""
    draw = _Drawing(trace, found, base, position)
    work, launch = launches(trace)
    node, operator = gradients(trace)
    return [
        *draw.arrows("launch", launch, work, work),
        *draw.arrows("gradient", operator, node, len(trace) + node),
        draw.memory(),
        draw.steps(),
    ]


def launches(trace: Trace) -> tuple[IntArray, IntArray]:
    """Rows of device work, and of the launch of each."""
    launched_by = trace.ints("launched_by")
    work = np.flatnonzero(launched_by != NO_ROW)
    return work, launched_by[work]


def gradients(trace: Trace) -> tuple[IntArray, IntArray]:
    """Rows of backward nodes, and of the forward operator that each is the gradient of: the innermost and last one of
    its process with that sequence number before the backward. None where several threads used the number."""
    sequence, backward = trace.ints("sequence"), trace.rows("phase", BACKWARD)
    rows = np.flatnonzero(trace.host & (sequence >= 0) & trace.rows("kind", *OPERATOR_KINDS))
    _, key = np.unique(
        np.stack([trace.ints(c)[rows] for c in ("rank", "pid", "sequence")]), axis=1, return_inverse=True
    )
    key = key.reshape(-1)
    count = int(key.max(initial=-1)) + 1
    after = backward[rows]
    node, operator, tid = (np.full(count, NO_ROW, np.int64) for _ in range(3))
    node[key[after][::-1]] = rows[after][::-1]
    operator[key[~after]] = rows[~after]
    tid[key[~after]] = trace.ints("tid")[rows[~after]]
    ambiguous = np.zeros(count, np.bool_)
    np.logical_or.at(ambiguous, key[~after], trace.ints("tid")[rows[~after]] != tid[key[~after]])
    both = (node != NO_ROW) & (operator != NO_ROW) & ~ambiguous
    return node[both], operator[both]


class _Drawing:
    """Lines for rows of one trace."""

    def __init__(self, trace: Trace, found: Lanes, base: int, position: IntArray) -> None:
        self._trace, self._found, self._base, self._position = trace, found, base, position
        self._process = np.array([lane.process for lane in found.lanes], np.int64)
        self._thread = np.array([lane.thread for lane in found.lanes], np.int64)

    def arrows(self, name: str, tail: IntArray, tip: IntArray, number: IntArray) -> list[Extra]:
        """Both ends of arrows between rows that lead forward."""
        forward = self._position[tip] > self._position[tail]
        tail, tip, number = tail[forward], tip[forward], number[forward]
        kinds = ((tail, f'"ph":"s",{_named(name)}'), (tip, f'"ph":"f","bp":"e",{_named(name)}'))
        return [self._extra(rows, constant, lambda some, n: [number_member("id", n[some])], number)
                for rows, constant in kinds]  # fmt: skip

    def memory(self) -> Extra:
        """Bytes allocated on each device, after each memory event that tells them."""
        total, device = self._trace.ints("total_bytes", _UNKNOWN), self._trace.codes("device")
        names = type(device)(device.codes, [f"memory {value}" for value in device.values])
        rows = np.flatnonzero(self._trace.rows("kind", MEMORY) & (total != _UNKNOWN))
        text = TextMember("name", names)

        def members(some: IntArray, ordered: IntArray) -> list[pa.Array]:
            value = number_member("allocated bytes", total[ordered[some]])
            return [text.take(ordered[some]), joined(['"args":{', value, "}"])]

        return self._extra(rows, f'"ph":"C","cat":"{OWN_CATEGORY}memory"', members, rows)

    def steps(self) -> Extra:
        """A mark at the begin of each step."""
        rows = np.flatnonzero(self._trace.host & self._trace.rows("kind", STEP))
        text = TextMember("name", self._trace.codes("name"))
        constant = f'"ph":"i","s":"p","cat":"{OWN_CATEGORY}step"'
        return self._extra(rows, constant, lambda some, ordered: [text.take(ordered[some])], rows)

    def _extra(
        self,
        rows: IntArray,
        constant: str,
        members: Callable[[IntArray, IntArray], list[pa.Array]],
        payload: IntArray,
    ) -> Extra:
        """Events at ``rows``; ``members(some, payload)`` makes what differs, of those with the indices ``some``."""
        order = np.argsort(self._position[rows], kind="stable")
        rows, payload = rows[order], payload[order]

        def lines(some: IntArray) -> pa.Array:
            start = self._trace.ints("start_ns")[rows[some]] - self._base
            lane = self._found.lane[rows[some]]
            shared = pa.repeat(constant, len(some))
            place = [number_member("pid", self._process[lane]), number_member("tid", self._thread[lane])]
            when = joined(['"ts":', microseconds(start)])
            return objects([shared, when, *place, *members(some, payload)])

        return Extra(self._position[rows], lines)


def _named(name: str) -> str:
    return f'"name":{quoted(name)},"cat":{quoted(OWN_CATEGORY + name)}'
