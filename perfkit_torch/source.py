"""Reader of the Chrome traces that torch.profiler exports. It reads traces of all versions of Kineto since 2021."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa

from perfkit_core.base.algorithms.arrays import one_of, picked
from perfkit_core.base.algorithms.decimals import to_ns
from perfkit_core.base.language.messages import message, plural
from perfkit_core.errors import SourceError
from perfkit_core.plugins.contracts import EventWriter
from perfkit_core.readers.ascend import recording as ascend
from perfkit_core.readers.ascend.arguments import number
from perfkit_core.readers.ascend.host_calls import LAUNCHES, with_launches
from perfkit_core.readers.ascend.rank_folder import RankFolder
from perfkit_core.readers.chrome.dialect import device, integer
from perfkit_core.readers.chrome.event_collector import described
from perfkit_core.readers.chrome.process_ids import with_ranks
from perfkit_core.readers.chrome.reader import Reading, file_account, file_findings
from perfkit_core.readers.chrome.unlabelled import DERIVED, interpreted, with_links
from perfkit_core.trace.assembly.assemble import assemble_ranks
from perfkit_core.trace.assembly.draft import RecordedEvents
from perfkit_core.trace.assembly.lost_records import left_out_operators, reported
from perfkit_core.trace.model.account import SUM, ReadEvents, with_left_out
from perfkit_core.trace.model.gate import impossible
from perfkit_core.trace.model.meta import Device, Finding, TraceMeta
from perfkit_core.trace.model.trace import Trace
from perfkit_core.trace.storage import bytestream
from perfkit_torch import dialect, operator_names

LINKS_LOST: Final = "links-without-events"
TABLES_LOST: Final = "tables-not-read"
_HEADER_MARKS: Final = (b'"deviceProperties"', b'"baseTimeNanoseconds"', b'"distributedInfo"', b'"with_stack"',
                        b'"torch_profiler_kwargs"')  # fmt: skip
_EVENT_MARKS: Final = (b"aten::", b'"cpu_op"', b'"Ev Idx"', b'"CPU functions"', b'"cuda_runtime"', b'"user_annotation"',
                       b"ProfilerStep#")  # fmt: skip
"""Texts that occur in torch's events. They identify a torch trace only if the file also has Chrome events: other files,
such as flame graphs, may contain operator names too."""
_EVENT: Final = re.compile(rb'"ph"\s*:\s*"')
_KINETO_VERSION: Final = re.compile(rb'"schemaVersion"\s*:\s*1\b(?!\.)')
_DECODED_KEYS: Final = frozenset(
    {"schemaVersion", "deviceProperties", "distributedInfo", "displayTimeUnit", "baseTimeNanoseconds"}
).union(dialect.OPTIONS)
_HEAD_BYTES: Final = 1 << 16
"""Number of bytes at the start of a file in which :func:`peek` looks for the rank. The descriptions of the devices come
before the rank. They take 4 KiB for eight devices."""
_RANK: Final = re.compile(rb'"distributedInfo"\s*:\s*\{(?:[^{}]|\{[^{}]*\})*?"rank"\s*:\s*(\d{1,9})\b')
_FEW: Final = 1 << 12
_NUMBERED: Final = ("cpu_op", "user_annotation")
"""Categories of the events that are numbered in a row, with their number in the argument :data:`_NUMBER`."""
_NUMBER: Final = "Ev Idx"
_EPOCH_FROM_NS: Final = 946_684_800 * 10**9
"""The start of the year 2000, in ns since 1970. Smaller times are assumed not to count from 1970."""


def sniff(path: Path, head: bytes) -> int:
    """Return how well the reader suits the file: 2 for a Chrome trace with fields or events of torch, else 0."""
    if head.lstrip()[:1] not in (b"{", b"["):
        return 0
    header = _KINETO_VERSION.search(head) or any(mark in head for mark in _HEADER_MARKS)
    events = _EVENT.search(head) and (RankFolder.around(path) or any(mark in head for mark in _EVENT_MARKS))
    return 2 if header or events else 0


def peek(path: Path) -> int | None:
    """Return the rank at the beginning of a trace file or of its folder, or None if there is none."""
    folder = RankFolder.around(path, partial=True)
    if folder is not None:
        return folder.rank
    match = _RANK.search(bytestream.head(path, _HEAD_BYTES))
    return int(match[1]) if match else None


def read(path: Path, partial: bool = False) -> Trace:
    """Return the Trace of a file. Raises SourceError if the file is damaged or has another format."""
    reading = _Reading(path, partial)
    reading.read()
    recorded = reading.collector.recorded(reading.base_ns)
    reading.see(recorded.columns, reading.base_ns)
    meta, quality = reading.meta(), reading.findings()
    links = reading.collector.link_ends(reading.base_ns)
    arrows = links.category == 1 + reading.dialect.link_categories.index(LAUNCHES)
    recorded, lost = with_links(recorded.with_account(reading.account()), links.of(~arrows))
    recorded, more = with_launches(recorded, links.of(arrows), meta.process_names)
    lost += more
    folder = RankFolder.around(path, partial)
    meta = ascend.described(meta, folder)
    quality += ascend.contradictions(folder.ranks if folder else {})
    recorded, meta, findings = _interpreted(recorded, meta, folder)
    findings += (*(folder.findings() if folder else ()),)
    if lost:
        quality += (_lost_links(lost),)
    return assemble_ranks(recorded, meta, quality + findings, operator_names.operator_name)


def stream(path: Path, partial: bool, writer: EventWriter) -> None:
    """Read the file in portions and write them to ``writer``. Raises SourceError as :func:`read` does."""
    reading = _Reading(path, partial, sparing=True)
    reading.stream(writer)
    quality = reading.findings()
    if links := int((reading.collector.link_ends().begins == 0).sum()):
        text = plural(
            "a streamed file does not keep 1 link between a host call and device work: its device work has no launch",
            "a streamed file does not keep {n} links between host calls and device work: their device work has no "
            "launch",
            links,
        )
        quality += (Finding(LINKS_LOST, text),)
    folder = RankFolder.around(path, partial)
    meta = ascend.described(reading.meta(), folder)
    quality += ascend.contradictions(folder.ranks if folder else {})
    if folder is not None and (folder.kernels is not None or folder.allocations is not None):
        text = message("a streamed file does not keep the tables of kernels and allocations that are next to the trace")
        quality += (Finding(TABLES_LOST, text),)
    writer.close(meta, quality, next(iter(meta.ranks), None), reading.base_ns, reading.account())


def complete(recorded: RecordedEvents, meta: TraceMeta) -> tuple[RecordedEvents, TraceMeta, tuple[Finding, ...]]:
    """Interpret streamed events, and separate the processes of the file. ``recorded`` has all events."""
    return _interpreted(described(recorded, dialect.TorchDialect()), meta)


def _interpreted(
    recorded: RecordedEvents, meta: TraceMeta, folder: RankFolder | None = None
) -> tuple[RecordedEvents, TraceMeta, tuple[Finding, ...]]:
    """Interpret the events without a category, and separate the processes of the file. ``folder`` has the tables of an
    Ascend device, if there are any."""
    recorded, sums = interpreted(recorded, meta, dialect.INTERPRETER)
    derived = len(sums)
    findings = _left_out(recorded.columns)
    if folder is not None or ascend.PROCESSES & set(meta.process_names.values()):
        tables = ascend.VendorTables.of_folder(folder)
        recorded, meta, more = ascend.completed(recorded, meta, tables, dialect.copy_kind, sums)
        findings += more
    else:
        recorded = recorded.without(sums)
    recorded, about_ranks = with_ranks(recorded)
    findings += about_ranks
    recorded = recorded.with_account(with_left_out((), SUM, derived))
    if derived:
        text = plural(
            "1 event is a sum that the writer of the file computed, and is left out",
            "{n} events are sums that the writer of the file computed, and are left out",
            derived,
        )
        findings += (Finding(DERIVED, text, note=True),)
    return recorded, meta, findings


def _left_out(columns: pa.Table) -> tuple[Finding, ...]:
    """Report operators that were left out. The first ones tell whether the numbers of all must be read."""
    rows = np.flatnonzero(one_of(columns["category"], *_NUMBERED))
    if not left_out_operators(number(picked(columns["args"], rows[:_FEW]), _NUMBER)):
        return ()
    return left_out_operators(number(picked(columns["args"], rows), _NUMBER))


def _lost_links(count: int) -> Finding:
    text = plural(
        "1 link between a host call and device work is not used: no operator or no device event begins at its ends",
        "{n} links between host calls and device work are not used: no operator or no device event begins at their "
        "ends",
        count,
    )
    return Finding(LINKS_LOST, text)


class _Reading(Reading[dialect.TorchDialect]):
    def __init__(self, path: Path, partial: bool, sparing: bool = False) -> None:
        super().__init__(path, dialect.TorchDialect(), partial, sparing)
        self._partial = partial
        self._middle_ns: list[int] = []
        self._below_1us: set[int] = set()

    def see(self, events: pa.Table, base_ns: int = 0) -> None:
        """Store the median of some ``start = start_ns - base_ns``, and up to two different values of ``start % 1000``.
        A few events may have times of another clock."""
        start_ns = events["start_ns"].to_numpy()
        if not len(start_ns):
            return
        self._middle_ns.append(int(np.median(start_ns[:: -(-len(start_ns) // _FEW)])) - base_ns)
        for part in (start_ns[:_FEW], start_ns):  # read all starts only if the first ones end with equal digits
            below = (part - base_ns) % 1000
            other = int(np.argmax(below != below[0]))
            self._below_1us.update({int(below[0]), int(below[other])})
            if other:
                return

    @property
    def base_ns(self) -> int:
        return integer(self.file.header.get("baseTimeNanoseconds")) or 0

    @property
    def rank(self) -> int | None:
        return _rank_and_world_size(self.file.header)[0]

    def meta(self) -> TraceMeta:
        header, (rank, world_size) = self.file.header, _rank_and_world_size(self.file.header)
        names, prefix = self.collector.thread_names.items(), "-" if rank is None else rank
        window_ns = None
        if self.dialect.window is not None:
            try:
                times = to_ns([bytes(text) or None for text in self.dialect.window], lambda at: " (of the recording)")
                start, duration = times.tolist()
                window_ns = self.base_ns + start, self.base_ns + start + duration
            except SourceError:
                if not self._partial:
                    raise
        return TraceMeta(
            source=str(self.file.path),
            format="torch-chrome",
            framework="torch",
            clock=self._clock(),
            ranks=() if rank is None else (rank,),
            world_size=world_size,
            window_ns=window_ns,
            devices=devices(header.get("deviceProperties")),
            options={key: bool(header[key]) for key in dialect.OPTIONS if key in header},
            thread_names={f"{prefix}:{key}": name for key, name in names},
            process_names={f"{prefix}:{key}": name for key, name in self.collector.ids.names.items()},
            process_labels={f"{prefix}:{key}": label for key, label in self.collector.ids.labels.items()},
            extra={key: value for key, value in header.items() if key not in _DECODED_KEYS},
            incomplete=self.file.truncated_at is not None,
        )

    def account(self) -> tuple[ReadEvents, ...]:
        return file_account(self.file, self.collector)

    def findings(self) -> tuple[Finding, ...]:
        findings = list(file_findings(self.file, self.collector))
        if {(below + self.base_ns) % 1000 for below in self._below_1us} == {0}:
            text = message("the file stores times in whole microseconds: each time may be off by up to 1 µs")
            findings.append(Finding("rounded-clock", text, note=True))
        if self._clock() == "relative":
            text = message("the file does not record the date: its times count from the start of the machine")
            findings.append(Finding("no-clock-origin", text, note=True))
        info = self.file.header.get("distributedInfo")
        stated = {key: info[key] for key in ("rank", "world_size") if key in info} if isinstance(info, dict) else {}
        unreadable = {key: value for key, value in stated.items() if integer(value) is None}
        findings += [impossible(unreadable)] if unreadable else []
        logs = (value for value in self.file.header.values() if isinstance(value, list))  # of each level, such as INFO
        return (*findings, *reported(line for log in logs for line in log if isinstance(line, str)))

    def _clock(self) -> str:
        after_2000 = [middle_ns + self.base_ns > _EPOCH_FROM_NS for middle_ns in self._middle_ns]
        return "epoch" if 2 * sum(after_2000) >= len(after_2000) else "relative"


def _rank_and_world_size(header: Mapping[str, Any]) -> tuple[int | None, int | None]:
    info = header.get("distributedInfo")
    return (integer(info.get("rank")), integer(info.get("world_size"))) if isinstance(info, dict) else (None, None)


def devices(properties: Any) -> tuple[Device, ...]:
    described = [item for item in properties if isinstance(item, dict)] if isinstance(properties, list) else []
    return tuple(
        device("cuda", integer(item.get("id", i)) or 0, item.get("name"), item.get("totalGlobalMem"), item)
        for i, item in enumerate(described)
    )
