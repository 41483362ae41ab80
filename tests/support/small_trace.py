"""A small hand-made trace: two steps with two operators, a kernel and a copy each, on one device."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from perfkit_core.trace.assembly.assemble import assemble
from perfkit_core.trace.assembly.draft import RecordedEvents
from perfkit_core.trace.model.meta import Device, Finding, TraceMeta
from perfkit_core.trace.model.trace import Trace

KERNEL = "void cutlass::Kernel2<" + "very_long_name_" * 60 + ">(Params)"
HOSTILE = "</script><script>alert(1)</script> \"'`|\n\x1b[31m\u202e\u0000<img src=x onerror=alert(2)>"


def _host(name: str, kind: str, start: int, dur: int, **more: Any) -> dict[str, Any]:
    return {"name": name, "kind": kind, "start_ns": start, "dur_ns": dur, "device": "cpu", "pid": 1, "tid": 1, **more}


def _device(name: str, kind: str, start: int, dur: int, correlation: int, **more: Any) -> dict[str, Any]:
    place = {"device": "cuda:0", "stream": 7, "correlation": correlation}
    return {"name": name, "kind": kind, "start_ns": start, "dur_ns": dur, **place, **more}


def small_trace(label: str = "label") -> Trace:
    """Return the small trace. ``label`` is the name of its user annotation."""
    rows = []
    for step, start in enumerate((0, 10_000_000)):
        rows += [
            _host(f"step {step}", "step", start, 9_000_000 + step, step=step),
            _host(label, "annotation", start + 100, 8_000_000),
            _host("fw::matmul", "operator", start + 1_000, 5_000_000, shapes="[[2, 3], [3, 4]]"),
            _host("fw::add", "operator", start + 2_000, 1_000_001),
            _host("launch", "runtime", start + 3_000, 500, correlation=step + 1),
            _device(KERNEL, "kernel", start + 100_000, 3_000_000, step + 1),
            _host("copy", "runtime", start + 6_000_000, 500, correlation=step + 11),
            _device("copy", "memcpy", start + 6_001_000, 2_000, step + 11, bytes=4096, copy_kind="HtoD"),
        ]
    meta = TraceMeta(
        source="runs/small", format="test", framework="fw", framework_version="1.2", clock="relative",
        recorded_at_ns=1_700_000_000 * 10**9, ranks=(0,), world_size=2, devices=(Device("cuda:0", "Small GPU"),),
    )  # fmt: skip
    return assemble(
        RecordedEvents(pa.Table.from_pylist(_same_keys(rows))), meta, (Finding("made-up", "made by hand"),), rank=0
    )


def _same_keys(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    keys = dict.fromkeys(key for row in rows for key in row)
    return [{key: row.get(key) for key in keys} for row in rows]
