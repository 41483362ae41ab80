"""What a timeline is made of: plain data, so that a section can carry it and a renderer can draw it."""

from __future__ import annotations

from dataclasses import dataclass

from perfkit_core.trace import IntArray


@dataclass(frozen=True, slots=True)
class Part:
    """A stretch of time to look at: a step, or the recording; ns from the beginning of the timeline."""

    name: str
    start_ns: int
    end_ns: int


@dataclass(frozen=True, slots=True)
class Row:
    """A thread or a stream: the process or device that it belongs to, and its own name."""

    group: str
    name: str


@dataclass(frozen=True, slots=True)
class Timeline:
    """Boxes, sorted by row, depth and start; each array of shape (boxes,).

    ``start_ns`` counts from the beginning of the timeline. ``name``, ``kind`` and ``row`` are positions in ``names``,
    ``kinds`` and ``rows``. ``cause`` is the box that launched this one, -1 where none of them did. ``first`` is the
    position of the part to show first.
    """

    parts: tuple[Part, ...]
    rows: tuple[Row, ...]
    names: tuple[str, ...]
    kinds: tuple[str, ...]
    start_ns: IntArray
    dur_ns: IntArray
    name: IntArray
    kind: IntArray
    row: IntArray
    depth: IntArray
    cause: IntArray
    first: int = 0

    def __len__(self) -> int:
        return len(self.start_ns)
