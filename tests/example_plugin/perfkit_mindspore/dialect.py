"""The MindSpore dialect of Chrome traces: every event ran on a stream of one Ascend device, and tid is the stream."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, ClassVar

from perfkit_core.model import schema
from perfkit_core.readers.chrome.dialect import ChromeEvent, Dialect, Label
from perfkit_mindspore import names

DEVICE = "npu"
SUMMARY_PROCESS = 10000
"""pid of the rows that only say when a stream worked in parallel to others."""


class MindSporeDialect(Dialect):
    """See :class:`perfkit_core.readers.chrome.dialect.Dialect`."""

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
    """The events with their stream among the arguments, where a dialect looks for it."""
    for event in events:
        event.args = {**(event.args or {}), "stream": event.tid}
        yield event
