"""The MindSpore dialect of Chrome traces. Every event ran on a stream of one Ascend device, and ``tid`` is the number
of the stream."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, ClassVar

from perfkit_core.readers.chrome.dialect import ChromeEvent, Dialect, Label
from perfkit_core.trace.model import schema
from perfkit_mindspore import names

DEVICE = "npu"
SUMMARY_PROCESS = 10000
"""The ``pid`` of summary rows, which only record when several streams worked at the same time."""


class MindSporeDialect(Dialect):
    """The :class:`perfkit_core.readers.chrome.dialect.Dialect` of MindSpore."""

    framework = "mindspore"
    arguments: ClassVar[Mapping[str, str]] = {"fullname": "module", "stream": "stream"}

    def clean_name(self, name: str) -> str:
        return names.clean_name(name)

    def label(self, category: str, name: str) -> Label:
        return Label(schema.KERNEL, backend=DEVICE)

    def refine(self, label: Label, args: Mapping[str, Any]) -> Label:
        return label._replace(phase=names.phase(args.get("fullname", "")))

    def keeps(self, event: ChromeEvent) -> bool:
        return event.pid != SUMMARY_PROCESS

    def device(self, label: Label, pid: Any, args: Mapping[str, Any]) -> str:
        return f"{DEVICE}:0"


def with_stream(events: Iterable[ChromeEvent]) -> Iterator[ChromeEvent]:
    """Return the events with their stream as an argument, which is where a dialect reads the stream."""
    for event in events:
        event.args = {**(event.args or {}), "stream": event.tid}
        yield event
