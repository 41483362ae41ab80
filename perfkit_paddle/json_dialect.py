"""The Paddle dialect of Chrome JSON, as Paddle 2.3 to 3.3 writes it (``schemaVersion`` 1.0.x).

Each event records its start twice:

- ``ts``: the time since 1970, truncated to whole µs.
- ``start_time``: the µs since the first host event, as float32. The error grows with time: it is below 1 ns in the
  first 8 ms, 4 ns at 0.1 s, 30 ns at 1 s, and 0.5 µs at 10 s.

perfkit combines both times, so the error of a start is at most 1 µs.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Any, ClassVar, Final

import numpy as np

from perfkit_core.base.algorithms.arrays import IntArray
from perfkit_core.readers.chrome.dialect import ChromeEvent, Dialect, Label, ScanRules, integer
from perfkit_core.trace.model.schema import MEMORY, UNKNOWN
from perfkit_paddle import names

_START_TIME: Final = re.compile(r"(\d{1,12}(?:\.\d{1,9})?) us", re.ASCII)
_FLOAT32_STEPS: Final = 2.0**-23
"""Largest relative error of a time that Paddle rounded to float32 twice: first in ns, then in µs."""
_MICROSECOND_NS: Final = 1000


def float_error(ns: IntArray) -> IntArray:
    """Return the largest error of each time, in ns. The times were written as float32 µs with three decimals."""
    return np.asarray(np.floor(ns * _FLOAT32_STEPS + 0.75), np.int64)


def offset(text: object) -> int | None:
    """Return a ``start_time`` such as "12.345 us" in ns, rounded half to even. Return None for other texts."""
    match = _START_TIME.fullmatch(text) if isinstance(text, str) else None
    return round(Decimal(match[1]) * _MICROSECOND_NS) if match else None


def refine(whole_us_ns: IntArray, offset_ns: IntArray) -> tuple[IntArray, IntArray]:
    """Return the start of each event, and the largest error of each start. ``whole_us_ns`` are the starts, truncated
    to whole µs. ``offset_ns`` are the offsets from the first event, or negative if unknown. All values are in ns."""
    has_offset = offset_ns >= 0
    error, last = float_error(offset_ns), _MICROSECOND_NS - 1
    if not has_offset.any():
        return whole_us_ns, np.full_like(offset_ns, last)
    # The time at offset 0 is unknown. Each event limits it to a range. Use the middle of the common part of all ranges.
    low = int((whole_us_ns - offset_ns - error)[has_offset].max())
    high = int((whole_us_ns + last - offset_ns + error)[has_offset].min())
    origin, origin_error = (low + high) // 2, max((high - low + 1) // 2, 0)
    start = np.where(has_offset, np.clip(origin + offset_ns, whole_us_ns, whole_us_ns + last), whole_us_ns)
    return start, np.where(has_offset, np.minimum(error + origin_error, last), last)


_DURATION: Final = re.compile(r"\[\d+(?:\.\d+)? (?:ns|us|ms|s)\]$")
_THREAD: Final = re.compile(r"(\d{1,18})\((?:Python|C\+\+)\)")
_INPUT_KEYS: Final = ("input_shapes", "input_dtypes", "callstack")


class PaddleDialect(Dialect):
    """The dialect for one file. It also counts the data-quality problems of the file."""

    framework = "paddle"
    arguments: ClassVar[Mapping[str, str]] = {
        "correlation id": "correlation",
        "stream": "stream",
        "bytes": "bytes",
        "addr": "address",
        "increase_bytes": "bytes",
        "current_allocated": "total_bytes",
        "shapes": "shapes",
        "stack": "stack",
        "start_time": "offset_ns",
    }
    scan_rules = ScanRules(
        needs_reference=lambda category, name: not names.is_known(category),
        glued_durations=True,
        dropped=frozenset({"end_time", "device"}),
        dropped_if_empty=frozenset(_INPUT_KEYS),
        not_negative=frozenset({"bytes"}),
        device_arguments=("place",),
        offset_argument="start_time",
    )

    def __init__(self) -> None:
        self.unlabelled = 0
        self.overflowed = 0

    def label(self, category: str, name: str) -> Label:
        return names.label(category, name) if names.is_known(category) else Label(UNKNOWN)

    def clean_name(self, name: str) -> str:
        return _DURATION.sub("", name)

    def thread(self, tid: Any) -> int | None:
        match = _THREAD.fullmatch(tid) if isinstance(tid, str) else None
        return int(match[1]) if match else integer(tid)

    def device(self, label: Label, pid: Any, args: Mapping[str, Any]) -> str:
        if label.kind == MEMORY:
            return names.place_device(str(args.get("place", "")))
        index = integer(pid)  # device number; some events lack the argument "device"
        return f"{label.backend}:{0 if index is None else index}"

    def keeps(self, event: ChromeEvent) -> bool:
        """Convert the event's arguments, and count its problems. Return True, because every event is kept."""
        args: dict[str, Any] = event.args if isinstance(event.args, dict) else {}
        args.pop("end_time", None)
        args.pop("device", None)
        if "start_time" in args:
            args["start_time"] = offset(args["start_time"])
        if event.ph == "X" and not (isinstance(event.name, str) and _DURATION.search(event.name)):
            self.unlabelled += 1
        if "bytes" in args and (integer(args["bytes"]) or 0) < 0:
            del args["bytes"]
            self.overflowed += 1
        if "callstack" in args:
            event.args = {key: value for key, value in args.items() if key not in _INPUT_KEYS} | _inputs(args)
        return True


def _inputs(args: Mapping[str, Any]) -> dict[str, Any]:
    """Return shapes and types of an operator's inputs, and its stack. The keys are those of the protobuf reader."""
    shapes, types = (
        {slot: items for slot, items in value.items() if isinstance(items, list)} if isinstance(value, dict) else {}
        for value in (args.get("input_shapes"), args.get("input_dtypes"))
    )
    stack = args.get("callstack")
    columns = {
        "shapes": [shape for slot in shapes.values() for shape in slot],
        "stack": names.stack_text(stack if isinstance(stack, str) else ""),
        "input_slots": {slot: len(items) for slot, items in shapes.items()},
        "input_types": types,
    }
    return {key: value for key, value in columns.items() if value}
