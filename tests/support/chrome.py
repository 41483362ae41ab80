"""Writes small Chrome traces, sound and unsound."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

HEADER: dict[str, Any] = {"schemaVersion": 1, "deviceProperties": [], "baseTimeNanoseconds": 0}


def event(name: str, ts: float, dur: float = 1, **more: Any) -> dict[str, Any]:
    """A complete event of torch's operators."""
    return {"ph": "X", "cat": "cpu_op", "name": name, "pid": 1, "tid": 1, "ts": ts, "dur": dur, **more}


def write(path: Path, events: list[dict[str, Any]], **header: Any) -> Path:
    """The object form, header first."""
    return raw(path, json.dumps({**HEADER, **header, "traceEvents": events}).encode())


def raw(path: Path, data: bytes) -> Path:
    """Bytes as they are, compressed when the name says so."""
    path.write_bytes(gzip.compress(data, 1) if path.suffix == ".gz" else data)
    return path
