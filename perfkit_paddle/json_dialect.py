"""What Paddle's Chrome JSON means (``schemaVersion`` 1.0.x, Paddle 2.3 to 3.3)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, ClassVar, Final

from perfkit_core.schema import MEMORY, OTHER
from perfkit_core.sources.chrome_event import ChromeEvent
from perfkit_core.sources.dialect import Dialect, Label, integer
from perfkit_core.sources.scan.rules import ScanRules
from perfkit_paddle import inputs, json_times, names

_DURATION: Final = re.compile(r"\[\d+(?:\.\d+)? (?:ns|us|ms|s)\]$")
_THREAD: Final = re.compile(r"(\d{1,18})\((?:Python|C\+\+)\)")
_INPUT_KEYS: Final = ("input_shapes", "input_dtypes", "callstack")


class PaddleDialect(Dialect):
    """Reads one file. Counts what is doubtful in it."""

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
        index = integer(pid)  # the device number; the argument "device" is not in every event
        return f"{label.backend}:{0 if index is None else index}"

    def keeps(self, event: ChromeEvent) -> bool:
        """All of them; the recorder asks before it reads the arguments, which are put in order here."""
        self._prepare(event)
        return True

    def _prepare(self, event: ChromeEvent) -> None:
        """Take out of the arguments what is no argument, count what is doubtful."""
        args: dict[str, Any] = event.args if isinstance(event.args, dict) else {}
        args.pop("end_time", None)
        args.pop("device", None)
        if "start_time" in args:
            args["start_time"] = json_times.offset(args["start_time"])
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


def _inputs(args: Mapping[str, Any]) -> dict[str, Any]:
    """The operator's inputs as in the protobuf: shapes in the order of the slots, the rest as arguments."""
    shapes, types = (_slots(args.get(key)) for key in ("input_shapes", "input_dtypes"))
    stack = args.get("callstack")
    listed = [shape for slot in shapes.values() for shape in slot]
    found: dict[str, Any] = {"shapes": listed, "stack": inputs.stack_text(stack if isinstance(stack, str) else "")}
    rest = {"input_slots": {slot: len(value) for slot, value in shapes.items()}, "input_types": types}
    return {key: value for key, value in (found | rest).items() if value}


def _slots(value: Any) -> dict[str, list[Any]]:
    return {k: v for k, v in value.items() if isinstance(v, list)} if isinstance(value, dict) else {}
