"""Events whose category says nothing. What they are follows from the labels of their process and thread, from their
arguments, and from the links (flow events) that begin or end at them. What stays unclear keeps the kind ``unknown``."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from perfkit_core.base.algorithms.arrays import (
    NO_ROW,
    BoolArray,
    Codes,
    IntArray,
    first_match,
    one_of,
    picked,
    to_codes,
)
from perfkit_core.base.algorithms.groupby import distinct
from perfkit_core.readers.chrome.dialect import Label
from perfkit_core.trace.assembly.draft import EXTERNAL, RecordedEvents, integers, with_cells, with_integers
from perfkit_core.trace.model import schema
from perfkit_core.trace.model.meta import TraceMeta

DERIVED: Final = "derived-events"
"""Code of the finding on events that are sums of other events."""
Lane = tuple[int, int]
"""A process and a thread."""

_DEVICE: Final = re.compile(r"(GPU|NPU|XPU|HPU|MLU|TPU|MTIA|DCU|MUSA|GCU)\b\s*(\d{0,4})", re.IGNORECASE)
"""A label of a process with the work of a device."""
_STREAM: Final = re.compile(r"stream\D{0,3}(\d{1,9})", re.IGNORECASE)
_STREAM_ARGUMENT: Final = re.compile(r'"(?:\w+ )?stream(?:[ _]?id)?":', re.IGNORECASE)
_DEVICE_ARGUMENT: Final = re.compile(r'"(?:device|context|task)(?:[ _]?id)?":', re.IGNORECASE)
_ROWS_LOOKED_AT: Final = 16
"""Number of events of a lane whose arguments are searched."""


@dataclass(frozen=True, slots=True)
class ProcessRole:
    """What the events of a process with a certain name are. With ``derived``, they are sums that the writer computed
    from other events. ``backend`` is the type of the device, or None for host events of the kind ``kind``. The threads
    of a device are its streams, or with ``threads_are_devices``, they are devices. ``device_number(pid, pids)`` returns
    the number of the device, which is otherwise that in the label. ``pids`` are all processes with names."""

    backend: str | None = None
    kind: str | None = None
    derived: bool = False
    threads_are_devices: bool = False
    device_number: Callable[[int, Collection[int]], int] | None = None


class LinkEnds(NamedTuple):
    """The ends of links between host calls and device work, each field of shape (ends,). The ends of a link have equal
    categories and ids."""

    category: IntArray
    id: IntArray
    begins: IntArray
    pid: IntArray
    tid: IntArray
    time_ns: IntArray

    def of(self, chosen: BoolArray) -> LinkEnds:
        """Return the ends in a mask."""
        return LinkEnds(*(values[chosen] for values in self))


@dataclass(frozen=True, slots=True)
class Interpreter:
    """What an adapter knows about events without a category.

    - ``roles``: roles of processes by name.
    - ``work_label(backend, name)``: the label of device work with this name.
    - ``backends``: types of devices by the word in a label of a process, in lower case, such as ``gpu``.
    """

    roles: Mapping[str, ProcessRole]
    work_label: Callable[[str, str], Label]
    backends: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _LaneOrigin:
    """Where the events of a lane ran: on the host with a kind, or on a device."""

    kind: str | None = None
    backend: str | None = None
    device: int = 0
    stream: int | None = None


def interpreted(recorded: RecordedEvents, meta: TraceMeta, interpreter: Interpreter) -> tuple[RecordedEvents, IntArray]:
    """Return the events with kinds for those of kind ``unknown``, and the rows of the events that must be left out
    because they are sums. The process decides also for events without a category whose name is that of an operator."""
    columns = recorded.columns
    unknown = one_of(columns["kind"], schema.UNKNOWN)
    rows = np.flatnonzero(unknown | _uncategorised(columns))
    if not len(rows):
        return recorded, rows
    lanes, lane_of = _lanes(columns, rows)
    linked = (integers(columns, EXTERNAL)[rows] != NO_ROW) & unknown[rows]
    origins, derived = _origins(columns, rows, lanes, lane_of, linked, meta, interpreter)
    # The events of one lane with one name are alike.
    names = Codes(*to_codes(columns["name"].chunks, columns.num_rows))
    pairs, pair_of = np.unique(lane_of * (len(names.values) + 1) + names.codes[rows] + 1, return_inverse=True)
    cells: dict[str, list[object]] = {name: [] for name in ("kind", "device", "stream", "copy_kind", "pid", "tid")}
    on_host, unclear = [], []
    for pair in pairs.tolist():
        lane, code = divmod(pair, len(names.values) + 1)
        origin, numbers = origins[lane], lanes[lane]
        unclear.append(origin is None or derived[lane])
        on_host.append(origin is None or origin.backend is None)
        new: tuple[object, ...] = (None,) * len(cells)
        if origin is not None and origin.backend is None:
            new = (origin.kind, schema.CPU, None, None, *(number if number >= 0 else None for number in numbers))
        elif origin is not None and origin.backend is not None:
            work = interpreter.work_label(origin.backend, names.values[code - 1] if code else "")
            device = f"{origin.backend}:{origin.device}"
            new = (origin.kind or work.kind, device, origin.stream, work.copy_kind, None, None)
        for cell, value in zip(cells.values(), new, strict=True):
            cell.append(value)
    placed = ~np.array(unclear)[pair_of] & (unknown[rows] | ~np.array(on_host)[pair_of])
    at = pa.array(pair_of[placed])
    for name, values in cells.items():
        columns = with_cells(columns, name, rows[placed], pa.array(values, columns[name].type).take(at))
    return replace(recorded, columns=columns), rows[np.array(derived)[lane_of]]


def _lanes(columns: pa.Table, rows: IntArray) -> tuple[list[Lane], IntArray]:
    """Return the different lanes, and the index of each row's lane."""
    (pids, of_pid), (tids, of_tid) = (
        np.unique(integers(columns, name)[rows], return_inverse=True) for name in ("pid", "tid")
    )
    lanes, lane_of = np.unique(of_pid * len(tids) + of_tid, return_inverse=True)
    return [(int(pids[lane // len(tids)]), int(tids[lane % len(tids)])) for lane in lanes.tolist()], lane_of


def _origins(
    columns: pa.Table,
    rows: IntArray,
    lanes: Sequence[Lane],
    lane_of: IntArray,
    linked: BoolArray,
    meta: TraceMeta,
    interpreter: Interpreter,
) -> tuple[list[_LaneOrigin | None], list[bool]]:
    """Return for each lane where its events ran, and whether they are sums. ``linked`` is the mask of the ``rows`` at
    which a link ends."""
    names_of = {key.partition(":")[2]: name for key, name in meta.thread_names.items()}
    processes = {int(key.rpartition(":")[2]) for key in meta.process_names}
    order = np.argsort(lane_of, kind="stable")
    ends = np.searchsorted(lane_of[order], np.arange(len(lanes) + 1))
    origins, derived = [], []
    for lane, begin, end in zip(lanes, ends[:-1].tolist(), ends[1:].tolist(), strict=True):
        process, label = (
            next((text for key, text in texts.items() if key.endswith(f":{lane[0]}")), "")
            for texts in (meta.process_names, meta.process_labels)
        )
        role = interpreter.roles.get(process)
        derived.append(role is not None and role.derived)
        some = rows[order[begin : min(end, begin + _ROWS_LOOKED_AT)]]
        args = [text for text in picked(columns["args"], some).to_pylist() if text]
        thread = names_of.get(f"{lane[0]}:{lane[1]}", "")
        ends_link = bool(linked[order[begin:end]].any())
        origin = _lane_origin(interpreter, role, f"{label} {process}", thread, lane, args, ends_link)
        if origin is not None and role is not None and role.device_number is not None:
            origin = replace(origin, device=role.device_number(lane[0], processes))
        origins.append(origin)
    return origins, derived


def _lane_origin(
    interpreter: Interpreter,
    role: ProcessRole | None,
    label: str,
    thread: str,
    lane: Lane,
    args: list[str],
    linked: bool,
) -> _LaneOrigin | None:
    """Return where the events of a lane ran, or None if this is unclear."""
    stream = _STREAM.search(thread)
    number = int(stream[1]) if stream else lane[1] if lane[1] >= 0 else None
    match = _DEVICE.search(label)
    device = int(match[2]) if match and match[2] else 0
    if role is not None:
        if role.threads_are_devices:
            return _LaneOrigin(role.kind, role.backend, max(lane[1], 0))
        return _LaneOrigin(role.kind, role.backend, device, number if role.backend else None)
    if match:
        word = match[1].lower()
        if stream or linked or any(_STREAM_ARGUMENT.search(text) for text in args):
            return _LaneOrigin(None, interpreter.backends.get(word, word), device, number)
        return None
    evidence = any(_STREAM_ARGUMENT.search(text) and _DEVICE_ARGUMENT.search(text) for text in args)
    if (stream and (linked or evidence)) or (linked and evidence):
        return _LaneOrigin(None, interpreter.backends.get("", "device"), device, number)
    return None


def with_links(recorded: RecordedEvents, links: LinkEnds) -> tuple[RecordedEvents, int]:
    """Return the events with equal ids in the column ``external`` for each event without a category at the end of a
    link and the operator at its beginning, and the number of links without these two events."""
    columns = recorded.columns
    source, work = linked_work(columns, links)
    if not len(work):
        return recorded, 0
    operators = one_of(columns["kind"], *schema.OPERATOR_KINDS)
    operator = np.where(source == NO_ROW, NO_ROW, _rows_at(columns, operators, links)[source])
    linked = np.flatnonzero((operator != NO_ROW) & (work != NO_ROW))
    external = integers(columns, EXTERNAL).copy()
    number = external.max(initial=0) + 1 + linked
    lost = len(work) - len(linked)
    operator, work = operator[linked], work[linked]
    first = distinct([work], len(work))[1]  # the first link of each event
    first = first[external[work[first]] == NO_ROW]
    operator, work, number = operator[first], work[first], number[first]
    new = distinct([operator], len(operator))[1]
    new = new[external[operator[new]] == NO_ROW]
    external[operator[new]] = number[new]
    free = external[work] == NO_ROW
    external[work[free]] = external[operator[free]]
    return replace(recorded, columns=with_integers(columns, EXTERNAL, external)), lost


def _uncategorised(columns: pa.Table) -> BoolArray:
    """Return the mask of operators without a category."""
    if not columns["category"].null_count:
        return np.zeros(columns.num_rows, np.bool_)
    mask: BoolArray = columns["category"].is_null().to_numpy() & one_of(columns["kind"], *schema.OPERATOR_KINDS)
    return mask


def linked_work(columns: pa.Table, links: LinkEnds) -> tuple[IntArray, IntArray]:
    """Return for each link with an end the index of its beginning in ``links``, and the row of the event without a
    category at its end, or -1."""
    begin, end = np.flatnonzero(links.begins), np.flatnonzero(links.begins == 0)
    if not len(end) or not columns.num_rows:
        return end[:0], end[:0]
    code, _ = distinct([links.category, links.id], len(links.id))
    works = one_of(columns["kind"], schema.UNKNOWN) | _uncategorised(columns)
    source = first_match(code[end], code[begin[::-1]], begin[::-1])
    return source, _rows_at(columns, works, links)[end]


def _rows_at(columns: pa.Table, mask: BoolArray, links: LinkEnds) -> IntArray:
    """Return for each end of a link the last row of the mask with its thread and time, or -1. In a sorted table, it is
    the innermost event."""
    cells = [integers(columns, name) for name in ("pid", "tid", "start_ns")]
    rows, times = np.flatnonzero(mask), np.sort(links.time_ns)
    rows = rows[times[np.searchsorted(times[:-1], cells[2][rows])] == cells[2][rows]]
    ends = (links.pid, links.tid, links.time_ns)
    keys = [np.concatenate([values[rows], cells_of_ends]) for values, cells_of_ends in zip(cells, ends, strict=True)]
    code, _ = distinct(keys, len(rows) + len(links.id))
    return first_match(code[len(rows) :], code[: len(rows)][::-1], rows[::-1])
