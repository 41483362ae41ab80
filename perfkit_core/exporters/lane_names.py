"""What a row of the timeline is called, and where its events ran."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from perfkit_core.schema import CPU
from perfkit_core.trace import IntArray, Trace

THREAD, PYTHON, CPP, STREAM, LABELS = range(5)
"""Groups of rows: a thread, the two halves of one, a stream, and what only labels its work."""

_SUFFIX: Final = {THREAD: "", PYTHON: " (Python)", CPP: " (C++)", STREAM: "", LABELS: " (annotations)"}


class Lane(msgspec.Struct, frozen=True):
    """One row of the timeline: where its events ran, and how the viewer calls it.

    ``process`` and ``thread`` are numbers of the viewer, unique over all ranks; ``pid`` and ``tid`` the system's.
    """

    process: int
    thread: int
    process_name: str
    name: str
    rank: int | None
    pid: int | None
    tid: int | None
    device: str
    stream: int | None

    @property
    def host(self) -> bool:
        """Whether this is a thread."""
        return self.device == CPU


def described(trace: Trace, rows: IntArray, group: IntArray, level: IntArray) -> list[Lane]:
    """The lanes with these example rows; ``group`` of each event, ``level``: the how-manieth row of its place it is."""
    several = len(trace.meta.ranks) > 1
    processes: dict[Any, int] = {}
    found = []
    for thread, (row, nth) in enumerate(zip(rows.tolist(), level.tolist(), strict=True), start=1):
        rank, pid, tid, stream = (_integer(trace, name, row) for name in ("rank", "pid", "tid", "stream"))
        device = trace.events["device"][row].as_py()
        host = group[row] in (THREAD, PYTHON, CPP)
        process = processes.setdefault((rank, pid if host else device, host), len(processes) + 1)
        name = _thread_name(trace, rank, pid, tid) if host else _stream_name(stream)
        name += _SUFFIX[int(group[row])] + (f" {nth + 1}" if nth else "")
        of_rank = f"rank {rank}: " if several else ""
        what = of_rank + (f"process {pid}" if host and pid is not None else "host" if host else _product(trace, device))
        found.append(Lane(process, thread, what, name, rank, pid, tid, CPU if host else device, stream))
    return found


def _integer(trace: Trace, column: str, row: int) -> int | None:
    value: int | None = trace.events[column][row].as_py()
    return value


def _thread_name(trace: Trace, rank: int | None, pid: int | None, tid: int | None) -> str:
    if tid is None:
        return "no thread"
    known = trace.meta.thread_names
    name = known.get(f"{rank}:{pid}:{tid}") or known.get(f"-:{pid}:{tid}") or ""
    return name if str(tid) in name else f"{tid} {name}".strip()


def _stream_name(stream: int | None) -> str:
    return "no stream" if stream is None else f"stream {stream}"


def _product(trace: Trace, device: str) -> str:
    names = {one.id: one.name for one in trace.meta.devices}
    return f"{device} {names[device]}" if names.get(device) else device
