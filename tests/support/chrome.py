"""Write small Chrome traces, valid and invalid."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

HEADER: dict[str, Any] = {"schemaVersion": 1, "deviceProperties": [], "baseTimeNanoseconds": 0}


def event(name: str, ts: float, dur: float = 1, **more: Any) -> dict[str, Any]:
    """Return a complete event of a torch operator."""
    return {"ph": "X", "cat": "cpu_op", "name": name, "pid": 1, "tid": 1, "ts": ts, "dur": dur, **more}


def write(path: Path, events: list[dict[str, Any]], **header: Any) -> Path:
    """Write the events as a JSON object, with the header before the events."""
    return raw(path, json.dumps({**HEADER, **header, "traceEvents": events}).encode())


def raw(path: Path, data: bytes) -> Path:
    """Write the bytes unchanged, compressed if the name ends with ``.gz``."""
    path.write_bytes(gzip.compress(data, 1) if path.suffix == ".gz" else data)
    return path
