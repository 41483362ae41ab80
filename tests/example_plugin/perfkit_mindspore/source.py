"""Reader of the files ``timeline_display_*.json`` that MindSpore's profiler writes."""

from __future__ import annotations

from pathlib import Path

from perfkit_core.readers.chrome.event_collector import EventCollector
from perfkit_core.readers.chrome.reader import ChromeFile, file_findings
from perfkit_core.trace.assembly.assemble import assemble
from perfkit_core.trace.model.meta import Device, TraceMeta
from perfkit_core.trace.model.trace import Trace
from perfkit_mindspore.dialect import DEVICE, MindSporeDialect, with_stream
from perfkit_mindspore.names import operator_name

_MARKS = (b'"DefaultFormat"', b'"NUMBER_TYPE_')


def sniff(path: Path, head: bytes) -> int:
    """Return 2 for a list of events whose arguments are MindSpore tensors, else 0."""
    return 2 if head.lstrip()[:1] == b"[" and all(mark in head for mark in _MARKS) else 0


def read(path: Path, partial: bool = False) -> Trace:
    """Return the Trace of a timeline. Raises SourceError."""
    file = ChromeFile(path, partial)
    collector = EventCollector(MindSporeDialect(), partial)
    for batch in file.batches():
        collector.add(list(with_stream(batch)))
    meta = TraceMeta(
        source=str(path),
        format="mindspore-timeline",
        framework="mindspore",
        clock="relative",
        devices=(Device(f"{DEVICE}:0", "Ascend"),),
        incomplete=file.truncated_at is not None,
    )
    return assemble(collector.recorded(), meta, file_findings(file, collector), operator_names=operator_name)
