"""The calls between a framework and an Ascend device: calls of CANN, the library of the device, and the task queue.

The vendor's text shows the calls of a process as a process of their own, and the level of a call before its name:
``AscendCL@aclrtMemcpyAsync``. Here, they are calls of the process that made them, so that they lie in its operators.

An operator enqueues a call, and another thread takes it from the queue and launches device work. The vendor records
which operator launched a task, except for some copies. For these, the way is: the call with the task's connection id,
the taking from the queue in which it was made, the enqueuing with the same number, and the operator around this. The
text records the numbers of the queue as arguments, the database as connections."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Final

import numpy as np
import pyarrow as pa

from perfkit_core.base.algorithms.arrays import NO_ROW, IntArray, first_match, one_of, picked, to_codes, valid
from perfkit_core.base.algorithms.groupby import distinct
from perfkit_core.base.runtime.compiled import Out, compiled
from perfkit_core.readers.ascend.arguments import extracted, number
from perfkit_core.readers.chrome.unlabelled import LinkEnds, linked_work
from perfkit_core.trace.assembly.draft import EXTERNAL, RecordedEvents, integers, with_cells, with_integers
from perfkit_core.trace.model import schema

PROCESS: Final = "CANN"
"""Name of the process that shows the calls."""
_LEVELS: Final = {"AscendCL": "acl", "Node": "node", "Model": "model", "Hccl": "hccl", "Communication": "hccl",
                  "Runtime": "runtime"}  # fmt: skip
"""Levels in the vendor's text, and in its database."""
_WAITS: Final = re.compile(r"acl(?:rt|mdl)Synchronize\w*")
MARK: Final = "user_annotation"
"""Category of ranges of mstx. The vendor's text has them in a process that has the name of the program."""
_MARK_TYPE: Final = "event_type"
"""Argument of ranges of mstx in the text."""
COLLECTOR: Final = "GC"
"""Category and name of the work of Python's garbage collector. The text has it in the process ``Python GC``."""
_LAYER_BITS, _DEVICE_BITS = 10, 5
"""The number of a process for display has the number of the real process above this many bits, and that of the device
in the last bits."""


def kind(name: str) -> str:
    """Return the kind of a call."""
    return schema.SYNC if _WAITS.match(name) else schema.RUNTIME


def real_process(shown: int, processes: Collection[int]) -> int | None:
    """Return the process of which ``shown`` shows a part, None if it is unknown. ``processes`` have operators."""
    if shown >> _LAYER_BITS in processes:
        return shown >> _LAYER_BITS
    return next(iter(processes)) if len(processes) == 1 else None


def device_number(shown: int, processes: Collection[int]) -> int:
    """Return the number of the device that a process shows, 0 if it is unknown."""
    return shown & (1 << _DEVICE_BITS) - 1 if shown >> _LAYER_BITS in processes else 0


def with_calls(recorded: RecordedEvents, process_names: Mapping[str, str]) -> RecordedEvents:
    """Return the events in which calls, ranges of mstx and the garbage collector have their kind and process, and calls
    also their name and level. ``process_names`` are those of the metadata."""
    columns, pid = recorded.columns, integers(recorded.columns, "pid").copy()
    marks = np.flatnonzero(one_of(columns["device"], schema.CPU) & one_of(columns["kind"], schema.UNKNOWN))
    marks = marks[valid(extracted(picked(columns["args"], marks), (), (_MARK_TYPE,))[1][0])]
    for name, value in (("kind", schema.ANNOTATION), ("category", MARK)):
        columns = with_cells(columns, name, marks, pa.repeat(value, len(marks)).dictionary_encode())
    rows = np.flatnonzero(np.isin(pid, shown_calls(process_names)) & one_of(columns["kind"], schema.RUNTIME))
    encoded = picked(columns["name"], rows).cast(pa.string()).dictionary_encode()
    parts = [name.partition("@") for name in encoded.dictionary.to_pylist()]
    names = [call or level for level, _, call in parts]
    levels = [_LEVELS.get(level, level.lower()) if call else None for level, _, call in parts]
    for name, values in (("name", names), ("category", levels), ("kind", [kind(name) for name in names])):
        cells = pa.array(values, pa.string()).take(encoded.indices).dictionary_encode()
        columns = with_cells(columns, name, rows, cells)
    processes = _of_operators(columns, pid)
    collecting = np.flatnonzero(one_of(columns["category"], COLLECTOR))
    for shown in set(pid[np.concatenate([rows, marks, collecting])].tolist()) - {NO_ROW}:
        if (process := real_process(shown, processes)) is not None:
            pid[pid == shown] = process
    return replace(recorded, columns=with_integers(columns, "pid", pid))


LAUNCHES: Final = "HostToDevice"
"""Category of the arrows from the times of launches to tasks."""


def with_launches(
    recorded: RecordedEvents, arrows: LinkEnds, process_names: Mapping[str, str]
) -> tuple[RecordedEvents, int]:
    """Return the events in which tasks have the connection id of the call that launched them, and the number of arrows
    without a task or a beginning. Some versions record no call with the connection id of a task: there, it is the
    innermost call around the beginning of the arrow, or the end of the queue around it. :func:`with_calls` comes
    later."""
    columns = recorded.columns
    source, work = linked_work(columns, arrows)
    found = (source != NO_ROW) & (work != NO_ROW)
    source, work, lost = source[found], work[found], int((~found).sum())
    pid, correlation = integers(columns, "pid"), integers(columns, "correlation")
    calls = np.isin(pid, shown_calls(process_names)) & one_of(columns["kind"], schema.UNKNOWN)
    open_ = first_match(correlation[work], correlation[calls], np.flatnonzero(calls)) == NO_ROW
    source, work = source[open_], work[open_]
    if not len(work):
        return recorded, lost
    shown, tid, time_ns = arrows.pid[source], arrows.tid[source], arrows.time_ns[source]
    call = enclosing(recorded, np.flatnonzero(calls), shown, tid, time_ns)
    processes, of_shown = _of_operators(columns, pid), np.unique(shown, return_inverse=True)
    real = [real_process(number_, processes) for number_ in of_shown[0].tolist()]
    process = np.array([NO_ROW if number_ is None else number_ for number_ in real], np.int64)[of_shown[1]]
    taken = enclosing(recorded, np.flatnonzero(one_of(columns["category"], DEQUEUE)), process, tid, time_ns)
    call = np.where(call == NO_ROW, taken, call)
    work, call = work[call != NO_ROW], call[call != NO_ROW]
    unnumbered = np.unique(call[correlation[call] == NO_ROW])
    new = correlation.copy()
    new[unnumbered] = correlation.max(initial=0) + 1 + np.arange(len(unnumbered))
    others = np.flatnonzero(one_of(columns["kind"], schema.UNKNOWN) & ~calls)  # such as the tasks of a collective
    shared = first_match(correlation[others], correlation[work], new[call])
    new[others[shared != NO_ROW]] = shared[shared != NO_ROW]
    new[work] = new[call]
    return replace(recorded, columns=with_integers(columns, "correlation", new)), lost


def shown_calls(process_names: Mapping[str, str]) -> list[int]:
    """Return the processes that show calls."""
    return [int(key.rpartition(":")[2]) for key, name in process_names.items() if name == PROCESS]


def _of_operators(columns: pa.Table, pid: IntArray) -> set[int]:
    return set(pid[one_of(columns["kind"], *schema.OPERATOR_KINDS) & (pid != NO_ROW)].tolist())


QUEUE_NUMBER: Final = "correlation_id"
"""Argument with the number of a call in the queue."""
ENQUEUE, DEQUEUE = "enqueue", "dequeue"
"""Categories of both ends of the queue."""
_PUT, _TAKEN = "Enqueue", "Dequeue@"
"""Name of a call at the end of the queue where it is put, and the beginning of its name where it is taken."""
_TRIED: Final = 64
"""Number of events, the latest first, among which the one around a time is looked for: operators nest."""


def queue_end(name: str) -> str | None:
    """Return the category of an end of the queue by its name, None for other events."""
    return ENQUEUE if name == _PUT else DEQUEUE if name.startswith(_TAKEN) else None


def with_queued_work(recorded: RecordedEvents) -> RecordedEvents:
    """Return the events with an external id for device work, and the operator that enqueued its call, if they have no
    external id."""
    columns = recorded.columns
    external, correlation = integers(columns, EXTERNAL).copy(), integers(columns, "correlation")
    work = np.flatnonzero(~one_of(columns["device"], schema.CPU) & (external == NO_ROW) & (correlation >= 0))
    calls = np.flatnonzero(one_of(columns["kind"], schema.RUNTIME, schema.SYNC) & (correlation >= 0))
    call = first_match(correlation[work], correlation[calls], calls)
    work, call = work[call != NO_ROW], call[call != NO_ROW]
    taken, put = (np.flatnonzero(one_of(columns["category"], category)) for category in (DEQUEUE, ENQUEUE))
    if not len(work) or not len(taken) or not len(put):
        return recorded
    cells = [integers(columns, name) for name in ("pid", "tid", "start_ns")]
    around = enclosing(recorded, taken, *(cell[call] for cell in cells))
    work, around = work[around != NO_ROW], around[around != NO_ROW]
    of_taken, of_put = (number(picked(columns["args"], rows), QUEUE_NUMBER) for rows in (taken, put))
    source = first_match(of_taken[np.searchsorted(taken, around)], of_put, put)
    work, source = work[source != NO_ROW], source[source != NO_ROW]
    operators = np.flatnonzero(one_of(columns["kind"], *schema.OPERATOR_KINDS))
    operator = enclosing(recorded, operators, *(cell[source] for cell in cells))
    work, operator = work[operator != NO_ROW], operator[operator != NO_ROW]
    new = np.unique(operator[external[operator] == NO_ROW])
    external[new] = external.max(initial=0) + 1 + np.arange(len(new))
    external[work] = external[operator]
    return replace(recorded, columns=with_integers(columns, EXTERNAL, external))


def with_operator_details(recorded: RecordedEvents) -> RecordedEvents:
    """Return the events in which the parts of operators that enqueue a call, such as ``aclnnAddmm`` in ``aten::addmm``,
    are details of the operator. They have no namespace, and the other end of the queue or their work has their name."""
    columns = recorded.columns
    operators = np.flatnonzero(one_of(columns["kind"], schema.OPERATOR))
    codes, values = to_codes([picked(columns["name"], operators)], len(operators))
    called = set(picked(columns["name"], np.flatnonzero(one_of(columns["category"], DEQUEUE))).unique().to_pylist())
    external = integers(columns, EXTERNAL)
    of_work = external[~one_of(columns["device"], schema.CPU)]
    launching = first_match(external[operators], of_work, of_work) != NO_ROW
    launches = np.bincount(codes, launching, len(values)) > 0
    detail = np.array(
        ["::" not in name and (launches[code] or f"{_TAKEN}{name}" in called) for code, name in enumerate(values)],
        np.bool_,
    )
    rows = operators[detail[codes]] if len(operators) else operators
    kinds = pa.repeat(schema.OPERATOR_DETAIL, len(rows)).dictionary_encode()
    return replace(recorded, columns=with_cells(columns, "kind", rows, kinds)) if len(rows) else recorded


def enclosing(
    recorded: RecordedEvents, outer: IntArray, process: IntArray, thread: IntArray, times: IntArray
) -> IntArray:
    """Return for each of the ``times`` in a thread the innermost of the rows ``outer`` there, or -1."""
    pid, tid, start, duration = (
        integers(recorded.columns, name)[outer] for name in ("pid", "tid", "start_ns", "dur_ns")
    )
    found = np.full(len(times), NO_ROW)
    lanes, first = distinct([process, thread], len(times))
    for lane, at in enumerate(first.tolist()):
        here = np.flatnonzero(lanes == lane)
        mine = np.flatnonzero((pid == process[at]) & (tid == thread[at]))
        found[here] = around(outer[mine], start[mine], start[mine] + duration[mine], times[here])
    return found


def around(rows: IntArray, start: IntArray, end: IntArray, times: IntArray) -> IntArray:
    """Return for each time the row that began last among those that last until then, or -1. ``start`` and ``end`` are
    the times of ``rows``."""
    order = np.argsort(start, kind="stable")
    at = np.searchsorted(start[order], times, side="right")
    place = np.empty(len(times), np.int64)
    _latest(at, end[order], times, place)
    return np.append(rows[order], NO_ROW)[place]


@compiled
def _latest(at: IntArray, ends: IntArray, times: IntArray, place: Out[IntArray]) -> None:
    """Set the last place before ``at`` whose event lasts until the time, or -1."""
    for i in range(len(times)):
        last = at[i] - 1
        while last >= 0 and last >= at[i] - _TRIED and ends[last] < times[i]:
            last -= 1
        place[i] = last if last >= at[i] - _TRIED else -1
