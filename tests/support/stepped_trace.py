"""Hand-made trainings with any number of steps. Each step has operators at its beginning, and is idle after them."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from perfkit_core.trace.assembly.assemble import assemble
from perfkit_core.trace.assembly.draft import RecordedEvents
from perfkit_core.trace.model.meta import TraceMeta
from perfkit_core.trace.model.trace import Trace

MS = 1_000_000


def stepped_trace(
    step_ms: Sequence[float],
    operator_ms: float = 1.0,
    operators: int = 1,
    name: str = "fw::matmul",
    source: str = "run",
) -> Trace:
    """Return steps of these durations. In each step, ``operators`` consecutive operators of ``operator_ms`` begin at
    0.1 ms."""
    rows, start = [], 0
    for number, length in enumerate(step_ms):
        rows.append(_host(f"step {number}", "step", start, round(length * MS), number))
        for at in range(operators):
            begin = start + MS // 10 + at * round(operator_ms * MS)
            rows.append(_host(name, "operator", begin, round(operator_ms * MS), None))
        start += round(length * MS) + MS
    meta = TraceMeta(source=source, format="test", framework="fw", clock="relative", ranks=(0,))
    return assemble(RecordedEvents(pa.Table.from_pylist(rows)), meta, (), rank=0)


def _host(name: str, kind: str, start: int, dur: int, step: int | None) -> dict[str, object]:
    place = {"device": "cpu", "pid": 1, "tid": 1}
    return {"name": name, "kind": kind, "start_ns": start, "dur_ns": dur, "step": step, **place}
