"""Read the activities of a torch profiler one by one. The tests compare perfkit's faster reader with this one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from perfkit_core.readers.chrome.dialect import ChromeEvent
from perfkit_core.readers.chrome.event_collector import EventCollector
from perfkit_torch.dialect import TorchDialect

MEMORY = "[memory]"


@dataclass(frozen=True)
class Activity:
    """Replacement for torch's activity object, for tests without a device. Its methods return the fields."""

    fields: tuple[str, str, int, int, int, int, int, int, str]

    def type(self) -> str:
        return self.fields[0]

    def name(self) -> str:
        return self.fields[1]

    def device_id(self) -> int:
        return self.fields[2]

    def resource_id(self) -> int:
        return self.fields[3]

    def timestamp(self) -> int:
        return self.fields[4]

    def duration(self) -> int:
        return self.fields[5]

    def correlation_id(self) -> int:
        return self.fields[6]

    def linked_correlation_id(self) -> int:
        return self.fields[7]

    def metadata_json(self) -> str:
        return self.fields[8]


@dataclass(frozen=True)
class Results:
    """Replacement for ``kineto_results``."""

    activities: Sequence[Any]

    def trace_activities(self) -> list[Any]:
        return list(self.activities)


def plain_columns(results: Any, with_flops: bool = False) -> pa.Table:
    """Return the columns that the core's collector creates if each activity is first converted to an event."""
    activities = results.trace_activities()
    flops = {event.correlation_id(): event.flops() for event in results.events()} if with_flops else {}
    collector = EventCollector(TorchDialect())
    start_ns = np.array([activity.timestamp() for activity in activities], np.int64)
    dur_ns = np.array([0 if a.name() == MEMORY else a.duration() for a in activities], np.int64)
    collector.add([_event(activity, flops) for activity in activities], (start_ns, dur_ns))
    return collector.recorded(in_order=False).columns


def _event(activity: Any, flops: dict[int, int]) -> ChromeEvent:
    category, correlation = activity.type(), activity.correlation_id()
    args = _metadata(activity.metadata_json())
    if category in ("cpu_op", "user_annotation"):
        args["External id"] = correlation
        if flops.get(correlation):
            args["flops"] = flops[correlation]
    elif category not in ("python_function", "cpu_instant_event"):
        args.setdefault("correlation", correlation)
        if activity.linked_correlation_id():
            args.setdefault("External id", activity.linked_correlation_id())
    ph = "i" if category == "cpu_instant_event" else "X"
    return ChromeEvent(ph, activity.name(), category, pid=activity.device_id(), tid=activity.resource_id(), args=args)


def _metadata(text: str) -> dict[str, Any]:
    try:
        return msgspec.json.decode(f"{{{text}}}", type=dict[str, Any])
    except msgspec.DecodeError:
        return {"metadata_json": text}
