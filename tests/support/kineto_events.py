"""The events that torch 2.11 gives to perfkit's handler, made from torch's own traces in tests/data/gpu."""

from __future__ import annotations

from functools import cache

from perfkit_core.trace.assembly.assemble import assemble
from perfkit_core.trace.model.trace import Trace
from perfkit_torch import live_events, on_trace_ready, operator_names
from tests.support.gpu_data import DEVICE_WORK, Native, live, native

RANGE = "gpu_user_annotation"
OPERATORS = ("cpu_op", "user_annotation", RANGE)
"""Categories with an id of their own. Other events have the id of an operator."""


class Event:
    """An event of torch 2.11's ``events()``, made from the event in torch's own trace."""

    def __init__(self, event: Native) -> None:
        self.event, self.args = event, event.args
        self.on_device = event.cat in (*DEVICE_WORK, "cuda_sync", RANGE)

    def name(self) -> str:
        return self.event.name

    def start_ns(self) -> int:
        return self.event.start + (self.event.cat == RANGE)

    def duration_ns(self) -> int:
        return self.event.end - self.event.start - 2 * (self.event.cat == RANGE)

    def device_type(self) -> int:
        return self.args.get("Device Type", 1 if self.on_device else 0)

    def device_index(self) -> int:
        return 0

    def device_resource_id(self) -> int:
        return self.args["stream"] if "stream" in self.args and self.on_device else self.event.tid

    def start_thread_id(self) -> int:
        return 1

    def correlation_id(self) -> int:
        return self.args.get("External id" if self.event.cat in OPERATORS else "correlation", 0)

    def linked_correlation_id(self) -> int:
        return 0 if self.event.cat in OPERATORS else self.args.get("External id", 0)

    def is_user_annotation(self) -> bool:
        return self.event.cat in ("user_annotation", RANGE)

    def sequence_nr(self) -> int:
        return self.args.get("Sequence number", -1)

    def fwd_thread_id(self) -> int:
        return self.args.get("Fwd thread id", 0)

    def shapes(self) -> list[list[int]]:
        lists = [any(isinstance(size, list) for size in shape) for shape in self.args.get("Input Dims", [])]
        return [[] if is_list else s for s, is_list in zip(self.args.get("Input Dims", []), lists, strict=True)]

    def dtypes(self) -> list[str]:
        return self.args.get("Input type", [])

    def stack(self) -> list[str]:
        return []

    def flops(self) -> int:
        return 0

    def nbytes(self) -> int:
        return self.args.get("Bytes", 0)


class Results:
    def __init__(self, name: str) -> None:
        self.name = name

    def events(self) -> list[Event]:
        return [Event(event) for event in native(self.name) if event.cat != "python_function"]


@cache
def read_again(name: str) -> Trace:
    """Read events as torch 2.11 gives them, with the reader of today."""
    recorded = on_trace_ready.read(live_events.from_events(Results(name), {})).recorded()
    return assemble(recorded, live(name).meta, operator_names=operator_names.operator_name)
