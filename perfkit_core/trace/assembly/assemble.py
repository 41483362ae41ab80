"""Assembly of the event table. Recorded events are sorted, and get parents, launches, steps, phases and layers.

- The parent of an event is the nearest event of the same thread that encloses it.
- Records whose times cannot be are left out of everything that follows (:mod:`implausible_times`).
- The launch of device work is the host call with the same correlation id, or else the operator with the same external
  id. If the work has an external id, and the call has none, the operator comes first. One launch of a CUDA graph may
  start thousands of kernels. Work without a launch is called unlaunched.
- The account counts the rows of the table. A warning names the rows that were not interpreted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

import numpy as np
import pyarrow as pa
from msgspec import structs

from perfkit_core.base.algorithms import groupby, nesting
from perfkit_core.base.algorithms.arrays import NO_ROW, IntArray, constant, filled, first_match, texts, to_int64
from perfkit_core.base.language.messages import message, plural, say
from perfkit_core.base.runtime import parallel
from perfkit_core.trace.assembly import (
    first_launches,
    graph_capture,
    implausible_times,
    layers,
    lost_records,
    python_frames,
    server_steps,
    steps,
)
from perfkit_core.trace.assembly.draft import (
    EXTERNAL,
    RECORDED_TYPES,
    DraftColumns,
    RecordedEvents,
    arranged,
    by_time,
    integers,
)
from perfkit_core.trace.model import account, schema, side_tables
from perfkit_core.trace.model.account import ReadEvents
from perfkit_core.trace.model.event_columns import TableColumns
from perfkit_core.trace.model.gate import checked_events, checked_meta, refused
from perfkit_core.trace.model.meta import NO_DEVICE, UNKNOWN_EVENTS, Finding, TraceMeta
from perfkit_core.trace.model.trace import Trace, concat_traces

_NEGLIGIBLE: Final = 0.01
"""Unknown events that take less than this share of the recording are only noted."""
_SHOWN: Final = 4
"""Number of unknown types that a warning names."""


def rows_read(draft: Trace) -> tuple[ReadEvents, ...]:
    """Return the rows by category, and by the process or device on which they ran."""
    categories, devices = draft.codes("category"), draft.codes("device")
    names = {key.rpartition(":")[2]: name for key, name in draft.meta.process_names.items()}
    pid, width = draft.ints("pid"), len(devices.values) + 1
    key = 2 * (width * (categories.codes.astype(np.int64) + 1) + devices.codes + 1) + (pid >= 0)
    group, first = groupby.by_appearance(key, 2 * width * (len(categories.values) + 1))
    if ((pid >= 0) & (pid != pid.max(initial=-1))).any():  # several processes
        group, first = groupby.distinct([group, pid], len(draft))
    counts = np.bincount(group, minlength=len(first))
    times = groupby.sums(group, len(first), draft.ints("dur_ns"))
    entries = []
    for row, count, dur_ns in zip(first.tolist(), counts.tolist(), times.tolist(), strict=True):
        category, device = (int(column.codes[row]) for column in (categories, devices))
        process = str(pid[row]) if pid[row] >= 0 else devices.values[device] if device >= 0 else None
        text = categories.values[category] if category >= 0 else None
        entries.append(ReadEvents(account.ROW, count, None, text, names.get(process or "", process), dur_ns))
    return tuple(entries)


def unknown_events(draft: Trace) -> tuple[Finding, ...]:
    """Warn of events that the reader could not interpret."""
    rows = np.flatnonzero(draft.rows("kind", schema.UNKNOWN))
    if not len(rows):
        return ()
    codes, time_ns = draft.codes("category"), int(draft.ints("dur_ns")[rows].sum())
    counts = Counter(codes.values[code] if code >= 0 else "" for code in codes.codes[rows].tolist())
    types = ", ".join(f"{name or say('no category')} ({count})" for name, count in counts.most_common(_SHOWN))
    text = plural(
        "1 event of an unknown type ({time:ns}) was not interpreted: {types}",
        "{n} events of unknown types ({time:ns}) were not interpreted: {types}",
        len(rows),
        time=time_ns,
        types=types,
    )
    first, last = int(draft.ints("start_ns").min()), int(draft.end_ns.max())
    return (Finding(UNKNOWN_EVENTS, text, note=time_ns < _NEGLIGIBLE * (last - first)),)


OperatorNames = Callable[[str], str | None]
"""Maps a native operator name to its canonical name, or to None if unknown (``Framework.operator_names``)."""


def assemble(
    recorded: RecordedEvents,
    meta: TraceMeta,
    quality: tuple[Finding, ...] = (),
    rank: int | None = None,
    operator_names: OperatorNames | None = None,
) -> Trace:
    """Return the assembled trace. Data-quality warnings about times, steps, launches, phases and replays of graphs are
    added to ``quality``."""
    meta, meta_findings = checked_meta(meta)
    if rank is not None and not 0 <= rank <= schema.MOST_RANKS:
        rank = None
    quality += meta_findings
    try:
        recorded.columns = checked_events(recorded.columns, RECORDED_TYPES, recorded.parent)
    except (pa.ArrowException, ValueError) as error:
        raise refused(error) from None
    sorted_events, parent, frame_findings = _draft(recorded, meta, rank)
    draft, findings = _linked(sorted_events, parent, operator_names)
    corrections = implausible_times.corrections(draft)
    if corrections is not None:
        sorted_events, parent, _ = _draft(corrections.recorded(sorted_events, parent), meta, rank)
        draft, findings = _linked(sorted_events, parent, operator_names)
        quality += corrections.findings
    warm_up, warm_up_findings = steps.warm_up_work(draft)  # by times that are right
    if len(warm_up):
        draft, findings = _linked(server_steps.with_kind(sorted_events, warm_up, schema.OTHER), parent, operator_names)
    quality += frame_findings + warm_up_findings
    del sorted_events
    draft = server_steps.with_times(draft)
    (phase, phase_findings), module = parallel.both(
        lambda: steps.assign_phases(draft), lambda: layers.assign(draft), len(draft)
    )
    draft = draft.with_columns(phase=phase, module=module)
    if len(draft) and not implausible_times.is_window(meta.window_ns, draft.ints("start_ns")):
        meta = structs.replace(meta, window_ns=(int(draft.ints("start_ns").min()), int(draft.end_ns.max())))
    events_read = account.joined([draft.account, rows_read(draft)])
    findings += lost_records.findings(draft) + phase_findings + unknown_events(draft)
    findings += implausible_times.above_100_percent(draft)
    tables = draft.tables.replaced({side_tables.ACCOUNT: account.to_table(events_read)})
    trace = Trace(TableColumns(draft.events), meta, quality + findings, tables)
    return trace.with_findings(*graph_capture.about_graphs(trace), *first_launches.findings(trace))


def assemble_ranks(
    recorded: RecordedEvents, meta: TraceMeta, quality: tuple[Finding, ...] = (),
    operator_names: OperatorNames | None = None,
) -> Trace:  # fmt: skip
    """Return the assembled trace of the processes in one file. The column ``rank`` assigns each event to a rank. Each
    rank is assembled by itself, because processes may use equal correlation ids."""
    ranks = meta.ranks
    if len(ranks) < 2 and "rank" in recorded.columns.column_names:
        ranks = tuple(sorted(set(recorded.columns["rank"].unique().to_pylist()) - {None})) or ranks
    if len(ranks) < 2:
        return assemble(recorded, structs.replace(meta, ranks=ranks), quality, next(iter(ranks), None), operator_names)
    parts: list[Trace] = []
    of_row = integers(recorded.columns, "rank").copy()
    of_row[of_row == NO_ROW] = ranks[0]  # no event is lost, also in a damaged file
    for rank in ranks:
        rows = np.flatnonzero(of_row == rank)
        events = recorded.taken(rows)
        if parts:  # the account of the events that are no rows counts once
            events = replace(events, tables=events.tables.without(side_tables.ACCOUNT))
        of_rank = _of_processes(meta, events.columns, rank)
        parts.append(assemble(events, of_rank, (), rank, operator_names))
    return concat_traces(parts).with_findings(*quality)


def _of_processes(meta: TraceMeta, events: pa.Table, rank: int) -> TraceMeta:
    """Return the metadata with the rank in the names of its processes and threads, if their rank was unknown."""
    processes = set(events["pid"].unique().to_pylist())

    def named(names: Mapping[str, str]) -> dict[str, str]:
        ours = {key: name for key, name in names.items() if key[:2] != "-:" or int(key.split(":")[1]) in processes}
        return {f"{rank}{key[1:]}" if key[:2] == "-:" else key: name for key, name in ours.items()}

    names = {name: named(getattr(meta, name)) for name in ("thread_names", "process_names", "process_labels")}
    return structs.replace(meta, ranks=(rank,), **names)


def _linked(
    draft: Trace, parent: IntArray | None, operator_names: OperatorNames | None
) -> tuple[Trace, tuple[Finding, ...]]:
    """Return the events with steps, parents, self times, launches and canonical names, and data-quality warnings."""
    external = draft.ints(EXTERNAL)
    draft = server_steps.with_server_steps(draft)
    foreign_steps, profiler_findings = steps.steps_of_other_profilers(draft)
    draft = server_steps.with_kind(draft, foreign_steps, schema.ANNOTATION)
    draft = server_steps.with_kind(draft, steps.no_steps(draft), schema.OTHER)

    def linked() -> tuple[Trace, tuple[Finding, ...]]:
        launched_by, launch_findings = _launches(draft, external)
        with_launches = draft.with_columns(launched_by=pa.array(launched_by))
        step, step_findings = steps.assign_steps(with_launches)
        return with_launches.with_ints(step=step), launch_findings + step_findings

    ((parents, self_ns), op_name), (trace, findings) = parallel.both(
        lambda: (_nested(draft, parent), _op_names(draft, operator_names)), linked, len(draft)
    )
    linked_trace = trace.with_columns(parent=pa.array(parents), op_name=op_name).with_ints(self_ns=self_ns)
    return linked_trace, profiler_findings + findings


def _draft(
    recorded: RecordedEvents, meta: TraceMeta, rank: int | None
) -> tuple[Trace, IntArray | None, tuple[Finding, ...]]:
    """Return a trace of the sorted events, the recorded parents or None, and findings. Missing columns have default
    values."""
    columns, parent, tables = recorded.pop_columns(), recorded.parent, recorded.tables
    count = len(columns["start_ns"])
    start, duration = (to_int64(columns[name].chunks, count, 0) for name in ("start_ns", "dur_ns"))
    order = by_time(start, duration)
    cut, findings = python_frames.ended(columns, start, duration, order)
    if cut is not None:
        columns["dur_ns"] = pa.chunked_array([pa.array(cut)])
        order = by_time(start, cut)
    names = [name for name, column in columns.items() if name in RECORDED_TYPES and column.null_count < count]
    sorted_columns = arranged(columns, {name: RECORDED_TYPES[name] for name in names}, order)
    if parent is not None and order is not None:
        parent = nesting.renumbered(parent, order)
    elif parent is not None:  # a parent must precede its child
        parent = np.where(parent < np.arange(len(parent)), parent, NO_ROW)
    if order is not None:
        position = np.empty(count, np.int64)
        position[order] = np.arange(count)
        tables = tables.renumbered(position.take)
    return Trace(DraftColumns(count, sorted_columns, rank), meta, tables=tables), parent, findings


def _op_names(trace: Trace, operator_names: OperatorNames | None) -> pa.ChunkedArray:
    if operator_names is None:
        return constant(None, schema.SCHEMA.field("op_name").type, len(trace))
    names, kinds = trace.codes("name"), trace.rows("kind", *schema.OPERATOR_KINDS)
    used = np.zeros(len(names.values) + 1, np.bool_)
    used[names.codes[kinds]] = True  # the last item is for nulls
    canonical = {int(code): operator_names(names.values[code]) for code in np.flatnonzero(used[:-1])}
    values: dict[str, int] = {}
    number = np.full(len(names.values), -1, np.int32)
    for code, name in canonical.items():
        number[code] = -1 if name is None else values.setdefault(name, len(values))
    return texts(np.where(kinds, names.lookup(number, -1), -1), list(values))


def _nested(trace: Trace, recorded_parent: IntArray | None) -> tuple[IntArray, IntArray]:
    """Return for each event the row of its parent (-1 if none) and its self time in ns (-1 if none). Only events that
    occupy a host thread have a self time. Without ``recorded_parent``, the parents follow from the times."""
    threaded = trace.ints("tid", NO_ROW) != NO_ROW
    occupies = trace.host & trace.rows("kind", *schema.NESTED_KINDS) & threaded
    inside = occupies | (trace.rows("kind", schema.MEMORY) & threaded)
    start, end = trace.ints("start_ns"), trace.end_ns
    if recorded_parent is None:
        parent = nesting.nest_in_order(inside, trace.ints("pid"), trace.ints("tid"), start, end)
    else:  # the parent is the nearest recorded ancestor that ``inside`` selects
        parent = nesting.nearest_above(recorded_parent, inside)
        parent[~inside] = NO_ROW
    return parent, nesting.self_times_in_order(occupies, parent, start, end)


def _launches(trace: Trace, external: IntArray) -> tuple[IntArray, tuple[Finding, ...]]:
    """Return for each event the row of the host event that launched it, and data-quality warnings. The row is -1 for
    host events, and for device work without a recorded launch. ``external`` has the ids that operators share with their
    launches. A negative id means that the event has none."""
    work, implausible = trace.rows("kind", *schema.DEVICE_WORK), trace.rows("kind", schema.IMPLAUSIBLE) & ~trace.host
    device = np.flatnonzero(~trace.host & (trace.ints("correlation") >= 0) | work | implausible)
    launched_by = filled(len(trace), NO_ROW)
    calls = np.flatnonzero(trace.host & trace.rows("kind", schema.RUNTIME, schema.SYNC))
    launched_by[device] = first_match(trace.ints("correlation")[device], trace.ints("correlation")[calls], calls)
    # A call without an external id may be made by a thread that launches for the operator.
    without = (launched_by[device] == NO_ROW) | (external[launched_by[device]] == NO_ROW)
    open_rows = device[without & (external[device] != NO_ROW)]
    if len(open_rows):
        operators = np.flatnonzero(trace.host & trace.rows("kind", *schema.OPERATOR_KINDS, schema.OPERATOR_DETAIL))
        found = first_match(external[open_rows], external[operators], operators)
        launched_by[open_rows] = np.where(found == NO_ROW, launched_by[open_rows], found)
    if not work.any():
        if (unknown := trace.rows("kind", schema.UNKNOWN)).any():
            text = plural(
                "no device work was recognised, but 1 event of an unknown type may be device work",
                "no device work was recognised, but {n} events of unknown types may be device work",
                int(unknown.sum()),
            )
            return launched_by, (Finding(NO_DEVICE, text),)
        text = message("no device work was recorded: there are no device times")
        if implausible.any():
            text = message("no device work has usable times: there are no device times")
        return launched_by, (Finding(NO_DEVICE, text, note=True),)
    lost = int((work & (launched_by == NO_ROW)).sum())
    if not lost:
        return launched_by, ()
    text = message(
        "{lost} of {count} device events have no recorded launch: they belong to no operator, step or phase",
        lost=lost,
        count=int(work.sum()),
    )
    return launched_by, (Finding("device-events-without-launch", text),)
