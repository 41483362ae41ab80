"""All measured readers of a trace file: perfkit, other tools, and lower bounds."""

from __future__ import annotations

from benchmarks.readers import engines, floors, hta, ours, plain, same_run
from benchmarks.readers.contract import Reader

READERS: tuple[Reader, ...] = (
    *ours.READERS, *hta.READERS, *plain.READERS, *engines.READERS, *same_run.READERS, *floors.READERS
)  # fmt: skip


def reader(name: str) -> Reader:
    """Return the reader with this name. Raises KeyError."""
    return {one.name: one for one in (*READERS, floors.SQLITE)}[name]
