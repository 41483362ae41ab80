"""Reader of Paddle's Chrome JSON.

The file does not record parents. They follow from the order of the events, because Paddle writes the tree of each
thread breadth first. In the file, the order of the events has two properties:

- An event's parent does not come before the previous event's parent.
- The runtime calls and memory events of a host event directly follow this event.

The times are rounded. They only decide which of the possible parents is right.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from perfkit_core.base.algorithms import groupby, nesting
from perfkit_core.base.algorithms.arrays import NO_ROW, BoolArray, IntArray, one_of
from perfkit_core.base.runtime.compiled import Out, compiled
from perfkit_core.plugins.contracts import EventWriter
from perfkit_core.readers.chrome.reader import Reading, file_account, file_findings
from perfkit_core.trace.assembly import draft, labels
from perfkit_core.trace.assembly.assemble import assemble_ranks
from perfkit_core.trace.assembly.process_ranks import with_ranks
from perfkit_core.trace.model.account import ReadEvents
from perfkit_core.trace.model.meta import Finding, TraceMeta
from perfkit_core.trace.model.schema import CPU, MEMORY, RUNTIME, SYNC
from perfkit_core.trace.model.trace import Trace
from perfkit_paddle import findings, json_dialect, operator_names
from perfkit_paddle.findings import make_meta, processes


def parents(
    thread: IntArray, host: BoolArray, attached: BoolArray, start: IntArray, end: IntArray, slack: IntArray
) -> tuple[IntArray, int]:
    """Return each event's parent row (-1 without a parent), and the number of threads whose events are in an unexpected
    order. In such a thread, only the times determine the parents. All arrays have the shape (rows,), in the order of
    the file.

    - ``host``: mask of the host events, which form the tree.
    - ``attached``: mask of runtime calls and memory events. They belong to the host event before them.
    - ``slack``: the largest error of the times.
    """
    parent = np.full(len(thread), NO_ROW, np.int64)
    nodes = np.flatnonzero(host | attached)
    by_thread = nodes[np.argsort(thread[nodes], kind="stable")]
    odd = 0
    for rows in np.split(by_thread, np.flatnonzero(np.diff(thread[by_thread])) + 1) if len(nodes) else ():
        above = np.full(len(rows), NO_ROW, np.int64)
        if not _level_by_level(host[rows], start[rows], end[rows], slack[rows], above):
            odd += 1
            above = nesting.nest(np.zeros(len(rows), np.int64), start[rows], end[rows])
        parent[rows] = np.where(above == NO_ROW, NO_ROW, rows[above])
    return parent, odd


@compiled
def _level_by_level(host: BoolArray, start: IntArray, end: IntArray, slack: IntArray, parent: Out[IntArray]) -> bool:
    """Set the parents within one thread. Return False if some event fits into no possible parent."""
    node = -1  # the last host event; runtime calls and memory events after it belong to it
    current = -1  # the parent of the last host event, -1 for the root
    for i in range(len(host)):
        if not host[i]:
            parent[i] = node
            continue
        before = node
        node = i
        if before < 0 or (parent[before] == current and _follows(current, before, i, start, end, slack)):
            parent[i] = current
            continue
        candidate = _next_parent(host, current, i, start, end, slack)
        if candidate < 0 and current >= 0 and _misfit(current, i, start, end) <= slack[current] + slack[i]:
            candidate = current  # Paddle does not sort siblings that overlap
        if candidate < 0:
            return False
        current = candidate
        parent[i] = candidate
    return True


@compiled
def _misfit(outer, inner, start, end):  # type: ignore[no-untyped-def]
    return max(start[outer] - start[inner], end[inner] - end[outer], 0)


@compiled
def _follows(current, before, i, start, end, slack):  # type: ignore[no-untyped-def]
    """Return whether event ``i`` can be the next sibling of event ``before``, with the parent ``current``."""
    if start[i] + slack[i] + slack[before] < end[before]:
        return False
    return current < 0 or _misfit(current, i, start, end) <= slack[current] + slack[i]


@compiled
def _next_parent(host, current, i, start, end, slack):  # type: ignore[no-untyped-def]
    best = -1
    for candidate in range(current + 1, i):
        if not host[candidate]:
            continue
        misfit = _misfit(candidate, i, start, end)
        if best >= 0:
            return candidate if misfit < _misfit(best, i, start, end) else best
        if misfit <= slack[candidate] + slack[i]:
            best = candidate
            if misfit == 0:
                return best
    return best


FORMAT: Final = "paddle-json"
_HEADER: Final = ("schemaVersion", "span_index", "span_indx")
_DEEPEST: Final = 64
"""Maximum number of tree levels that :func:`_inside_parents` corrects."""


def read_json(path: Path, partial: bool = False) -> Trace:
    """Return the Trace of a file. Raises SourceError if the file is damaged or has another format."""
    reading = _Reading(path, partial)
    reading.read()
    recorded = reading.collector.recorded(in_order=False).with_account(reading.account())
    meta = reading.meta(processes(recorded.columns))
    recorded, quality = complete(recorded, meta)
    return assemble_ranks(recorded, meta, (*reading.findings(), *quality), operator_names.operator_name)


def stream(path: Path, partial: bool, writer: EventWriter) -> None:
    """Read the file in portions and write them to ``writer``. Raises SourceError as :func:`read_json` does."""
    reading = _Reading(path, partial, sparing=True)
    reading.stream(writer)
    writer.close(reading.meta(reading.processes), reading.findings(), account=reading.account())


class _Reading(Reading[json_dialect.PaddleDialect]):
    def __init__(self, path: Path, partial: bool, sparing: bool = False) -> None:
        super().__init__(path, json_dialect.PaddleDialect(), partial, sparing)
        self.processes: dict[int, int] = {}  # thread → process, collected while streaming

    def see(self, events: pa.Table) -> None:
        self.processes.update(processes(events))

    def meta(self, processes: Mapping[int, int]) -> TraceMeta:
        header = self.file.header
        extra_info, described = header.get("ExtraInfo"), header.get("deviceProperties")
        texts = extra_info.items() if isinstance(extra_info, dict) else ()
        properties = described if isinstance(described, list) else ()
        return make_meta(
            processes,
            {key: text for key, text in texts if isinstance(text, str)},
            None,
            devices=tuple(findings.device(p, p.get("name")) for p in properties if isinstance(p, dict)),
            source=str(self.file.path),
            format=FORMAT,
            incomplete=self.file.truncated_at is not None,
            process_names={f"-:{key}": name for key, name in self.collector.ids.names.items()},
            process_labels={f"-:{key}": label for key, label in self.collector.ids.labels.items()},
            extra={key: header[key] for key in _HEADER if key in header},
        )

    def account(self) -> tuple[ReadEvents, ...]:
        return file_account(self.file, self.collector)

    def findings(self) -> tuple[Finding, ...]:
        dialect, quality = self.dialect, [*file_findings(self.file, self.collector)]
        if dialect.unlabelled:
            quality.append(findings.unlabelled(dialect.unlabelled))
        if dialect.overflowed:
            quality.append(findings.overflowed_bytes(dialect.overflowed))
        return tuple(quality)


def complete(recorded: draft.RecordedEvents, meta: TraceMeta) -> tuple[draft.RecordedEvents, tuple[Finding, ...]]:
    """Refine the starts of events, add their parents, and return warnings too. ``recorded`` must be in file order."""
    events, parent = recorded.columns, recorded.parent
    quality: tuple[Finding, ...] = ()
    if events.num_rows:
        offsets = pc.fill_null(events["offset_ns"], -1).to_numpy()
        start, start_error = json_dialect.refine(events["start_ns"].to_numpy(), offsets)
        dur = events["dur_ns"].to_numpy()
        dur_error = json_dialect.float_error(dur)
        parent, odd = _parents(events, start, dur, start_error + dur_error)
        memory = one_of(events["kind"], MEMORY)
        errors = (start_error[~memory], dur_error, start_error[memory])
        rounded = findings.rounded(*(int(error.max(initial=0)) for error in errors))
        quality = (rounded, findings.parents_rebuilt(odd))
        start, dur = _inside_parents(parent, start, dur)
        for name, values in (("start_ns", start), ("dur_ns", dur)):
            events = events.set_column(events.column_names.index(name), name, pa.array(values))
    recorded = replace(recorded, columns=events, parent=parent)
    recorded, about_processes = with_ranks(labels.with_labels(recorded))
    return recorded, (*quality, *findings.devices(events, meta.devices), *about_processes)


def _parents(events: pa.Table, start: IntArray, dur: IntArray, slack: IntArray) -> tuple[IntArray, int]:
    attached = one_of(events["kind"], MEMORY, RUNTIME, SYNC)
    has_thread = ~events["tid"].is_null().to_numpy()
    host: BoolArray = one_of(events["device"], CPU) & ~attached & has_thread
    ids = [pc.fill_null(events[column], -1).to_numpy() for column in ("pid", "tid")]
    thread, _ = groupby.distinct(ids, len(host))
    return parents(thread, host, attached & has_thread, start, start + dur, slack)


def _inside_parents(parent: IntArray, start: IntArray, dur: IntArray) -> tuple[IntArray, IntArray]:
    """Correct rounding errors, so that parents sort before their children. If a child starts before its parent, move
    the child to the parent's start. If both start together and the child is longer, cut it to the parent's duration."""
    start, dur = start.copy(), dur.copy()
    for _ in range(_DEEPEST):  # each pass corrects one level of the tree
        above = np.where(parent == NO_ROW, np.arange(len(parent)), parent)
        early = start < start[above]
        longer = (start == start[above]) & (dur > dur[above])
        if not (early | longer).any():
            break
        start = np.maximum(start, start[above])
        dur = np.where(longer, dur[above], dur)
    return start, dur
