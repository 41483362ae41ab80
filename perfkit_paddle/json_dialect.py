"""The Paddle dialect of Chrome JSON (``schemaVersion`` 1.0.x, Paddle 2.3 to 3.3), with times as exact as it allows.
Each event has two starts: whole µs since 1970 (``ts``, truncated), and float32 µs since the first host event
(``start_time``), exact to the ns in the first 8 ms and decaying from there: 4 ns at 0.1 s, 30 ns at 1 s, 0.5 µs at 10
s. Together the error is at most 1 µs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import numpy as np

from perfkit_core.algorithms.arrays import IntArray
from perfkit_core.model.schema import MEMORY, OTHER
from perfkit_core.readers.chrome.dialect import ChromeEvent, Dialect, Label, ScanRules, integer
from perfkit_paddle import names

_PLAIN: Final = re.compile(r"(\d{1,12})(?:\.(\d{1,9}))? us", re.ASCII)
_FLOAT32_STEPS: Final = 2.0**-23
"""Relative error of a number that was rounded to float32, divided and rounded again."""
_MICROSECOND_NS: Final = 1000


@dataclass(frozen=True, slots=True)
class Starts:
    """Start of each event in ns, its error bound, and whether ``start_time`` refined it, each of shape (events,)."""

    start_ns: IntArray
    error_ns: IntArray


def float_error(ns: IntArray) -> IntArray:
    """Return the largest error of a duration or offset of this size, written as float32 µs with three decimals."""
    return np.asarray(np.floor(ns * _FLOAT32_STEPS + 0.75), np.int64)


def offset(text: object) -> int | None:
    """Return a ``start_time`` in ns, rounded half to even; None if it is not a number."""
    match = _PLAIN.fullmatch(text) if isinstance(text, str) else None
    if not match:
        return None
    thousandths, beyond = divmod(int((match[2] or "").ljust(9, "0")), 10**6)
    up = beyond > 5 * 10**5 or (beyond == 5 * 10**5 and thousandths % 2 == 1)
    return int(match[1]) * _MICROSECOND_NS + thousandths + up


def refine(whole_us_ns: IntArray, offset_ns: IntArray) -> Starts:
    """Return starts from whole µs (in ns) and the offsets from the first event; negative offsets are unknown."""
    given = offset_ns >= 0
    error, last = float_error(offset_ns), _MICROSECOND_NS - 1
    if not given.any():
        return Starts(whole_us_ns, np.full_like(offset_ns, last))
    # the time of offset 0 and its error bound, from all events together
    low = int((whole_us_ns - offset_ns - error)[given].max())
    high = int((whole_us_ns + last - offset_ns + error)[given].min())
    origin, doubt = (low + high) // 2, max((high - low + 1) // 2, 0)
    start = np.where(given, np.clip(origin + offset_ns, whole_us_ns, whole_us_ns + last), whole_us_ns)
    return Starts(start, np.where(given, np.minimum(error + doubt, last), last))


_DURATION: Final = re.compile(r"\[\d+(?:\.\d+)? (?:ns|us|ms|s)\]$")
_THREAD: Final = re.compile(r"(\d{1,18})\((?:Python|C\+\+)\)")
_INPUT_KEYS: Final = ("input_shapes", "input_dtypes", "callstack")


class PaddleDialect(Dialect):
    """The dialect of one file; counts its data-quality problems."""

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
        self.unknown_types: dict[str, int] = {}
        self.unlabelled = 0
        self.overflowed = 0

    def label(self, category: str, name: str) -> Label:
        return names.label(category, name) if names.is_known(category) else Label(OTHER)

    def clean_name(self, name: str) -> str:
        return _DURATION.sub("", name)

    def thread(self, tid: Any) -> int | None:
        match = _THREAD.fullmatch(tid) if isinstance(tid, str) else None
        return int(match[1]) if match else integer(tid)

    def device(self, label: Label, pid: Any, args: Mapping[str, Any]) -> str:
        if label.kind == MEMORY:
            return names.place_device(str(args.get("place", "")))
        index = integer(pid)  # the device number; not every event has the argument "device"
        return f"{label.backend}:{0 if index is None else index}"

    def keeps(self, event: ChromeEvent) -> bool:
        """Keep all events; called before the arguments are read, it reorders them and counts problems."""
        args: dict[str, Any] = event.args if isinstance(event.args, dict) else {}
        args.pop("end_time", None)
        args.pop("device", None)
        if "start_time" in args:
            args["start_time"] = offset(args["start_time"])
        category = event.cat if isinstance(event.cat, str) else ""
        if not names.is_known(category):
            self.unknown_types[category] = self.unknown_types.get(category, 0) + 1
        if event.ph == "X" and not (isinstance(event.name, str) and _DURATION.search(event.name)):
            self.unlabelled += 1
        if "bytes" in args and (integer(args["bytes"]) or 0) < 0:
            del args["bytes"]
            self.overflowed += 1
        if "callstack" in args:
            event.args = {key: value for key, value in args.items() if key not in _INPUT_KEYS} | _inputs(args)
        return True


def _inputs(args: Mapping[str, Any]) -> dict[str, Any]:
    """Return an operator's inputs as in the protobuf: shapes in the order of the slots, the rest as arguments."""
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
