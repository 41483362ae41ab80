"""Every way of reading a trace file that is measured: perfkit's, the tools people use instead, and the floor."""

from __future__ import annotations

from benchmarks.readers import engines, floors, hta, ours, plain, same_run
from benchmarks.readers.contract import Reader

READERS: tuple[Reader, ...] = (
    *ours.READERS, *hta.READERS, *plain.READERS, *engines.READERS, *same_run.READERS, *floors.READERS
)  # fmt: skip


def reader(name: str) -> Reader:
    """The reader of this name. Raises KeyError."""
    return {one.name: one for one in READERS}[name]
