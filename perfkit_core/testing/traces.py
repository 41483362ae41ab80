"""Checks of an event table and of a stored Trace. A failed check raises AssertionError, even with ``python -O``."""

from __future__ import annotations

import re
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa

from perfkit_core.base.algorithms import intervals
from perfkit_core.base.algorithms.arrays import NO_ROW, BoolArray, IntArray
from perfkit_core.base.operators.names import is_canonical
from perfkit_core.readers.run_folder import read_stored
from perfkit_core.trace.model import schema
from perfkit_core.trace.model.schema import DEVICE_WORK, MEMORY, NESTED_KINDS, RUNTIME, SYNC
from perfkit_core.trace.model.trace import Trace
from perfkit_core.trace.storage.store import SUFFIX, write_trace


def require(condition: bool, message: str) -> None:
    if not condition:
        raise AssertionError(message)


def require_rows(trace: Trace, good: BoolArray, message: str) -> None:
    """Raise AssertionError if ``good`` is False in any row. The error shows the number of such rows and the first."""
    bad = np.flatnonzero(~np.asarray(good, np.bool_))
    if len(bad):
        values = trace.events.slice(int(bad[0]), 1).to_pylist()[0]
        row = {name: value for name, value in values.items() if value is not None}
        raise AssertionError(f"{message}: {len(bad)} rows, first row {bad[0]}: {row}")


_DEVICE: Final = re.compile(r"cpu|[a-z][a-z0-9_]*:\d+")
_CODE: Final = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
_NOTHING: Final = frozenset({"", "null", "None", "nan", "NaN", "<NA>", "[]", "{}"})
_TEXT_COLUMNS: Final = tuple(c.name for c in schema.COLUMNS if pa.types.is_dictionary(c.type))
_INTEGER_COLUMNS: Final = tuple(c.name for c in schema.COLUMNS if pa.types.is_integer(c.type))


def check_trace(trace: Trace, *, own_tree: bool = False) -> None:
    """Run all checks. If the source recorded the parents (``own_tree``), they need not enclose their children."""
    check_schema(trace)
    check_meta(trace)
    check_missing(trace)
    check_places(trace)
    check_tree(trace, own_tree)
    check_self_times(trace)
    check_launches(trace)
    check_steps(trace)
    check_phases(trace)
    check_operator_names(trace)


def check_schema(trace: Trace) -> None:
    """Check that the columns match the schema, that the events of a rank are sorted by start, and that no duration is
    negative."""
    columns = trace.events.schema.remove_metadata()
    require(columns.equals(schema.SCHEMA), f"the columns differ from the schema:\n{columns}")
    trace.events.validate(full=True)
    for column in schema.COLUMNS:
        nulls = trace.events[column.name].null_count
        require(column.nullable or not nulls, f"{column.name} must not contain nulls, but has {nulls}")
    start, rank = trace.ints("start_ns"), trace.ints("rank")
    other_rank = rank[1:] != rank[:-1]
    require(bool((other_rank | (start[1:] >= start[:-1])).all()), "the events of a rank are not sorted by start_ns")
    require_rows(trace, trace.ints("dur_ns") >= 0, "negative durations")
    timed = ~trace.rows("kind", schema.IMPLAUSIBLE) | (trace.ints("dur_ns") == 0)
    require_rows(trace, timed, "an implausible record has a duration")
    _require_values(trace, "kind", lambda value: value in schema.KINDS)
    _require_values(trace, "phase", lambda value: value in schema.PHASES)
    _require_values(trace, "device", lambda value: _DEVICE.fullmatch(value) is not None)


def check_meta(trace: Trace) -> None:
    """Check required metadata and ranks. The events of a rank must be adjacent. Data-quality warnings (findings) must
    be unique and match the events."""
    meta = trace.meta
    require(bool(meta.framework), "meta.framework is not set")
    require(bool(meta.source and meta.format), "meta.source and meta.format must be set")
    require(meta.clock in ("epoch", "relative"), f"unknown clock {meta.clock!r}")
    require(not len(trace) or meta.window_ns is not None, "meta.window_ns is not set")
    recorded = set(trace.events["rank"].unique().to_pylist()) - {None}
    require(recorded <= set(meta.ranks), f"meta.ranks {meta.ranks} lacks some ranks of the events: {recorded}")
    rank = trace.ints("rank")
    changes = len(rank[:1]) + (rank[1:] != rank[:-1]).sum()
    require(changes == len(np.unique(rank)), "the events of a rank are not adjacent")
    codes = {finding.code for finding in trace.quality}
    require(len(set(trace.quality)) == len(trace.quality), "a finding occurs twice")
    for finding in trace.quality:
        require(_CODE.fullmatch(finding.code) is not None, f"{finding.code!r} is not a valid code of a finding")
        require(bool(finding.message.strip()), f"finding {finding.code} has no text")
    has_steps = bool((trace.rows("kind", schema.STEP) & trace.host).any())
    require(has_steps != ("no-steps" in codes), "finding no-steps contradicts the events")
    has_work = bool(trace.rows("kind", *DEVICE_WORK).any())
    require(has_work != ("no-device-events" in codes), "finding no-device-events contradicts the events")


def check_missing(trace: Trace) -> None:
    """Check that missing values are null, not a word such as "None". Only the column ``name`` may contain empty
    texts. Columns such as ``bytes`` must not be 0 in all rows."""
    for name in _TEXT_COLUMNS:
        empty = _NOTHING.intersection(_used_values(trace, name))
        allowed = {""} if name == "name" else set()
        require(not empty - allowed, f"{name} contains {set(empty)} instead of null")
    for name in ("bytes", "address", "total_bytes", "flops", "correlation", "sequence"):
        values = trace.events[name].drop_null()
        zeros = len(values) == len(trace) and len(values) > 0 and not np.any(values.to_numpy())
        require(not zeros, f"{name} is 0 in all rows: a missing value must be null")
    for name in ("shapes", "dtypes"):
        _require_values(trace, name, lambda value: isinstance(_json(value), (list, dict)))
    for value in trace.events["args"].drop_null().to_pylist():
        require(isinstance(_json(value), dict) and value != "{}", f"args is not a JSON object: {value[:200]}")


def check_places(trace: Trace) -> None:
    """Check that host events have no stream. Device work must have no process, no thread and no self time."""
    host = trace.host
    nulls = {name: trace.events[name].is_null().to_numpy() for name in ("pid", "tid", "stream", "self_ns")}
    require_rows(trace, ~host | nulls["stream"], "the column stream must be null for host events")
    work = trace.rows("kind", *DEVICE_WORK)
    require_rows(trace, ~work | ~host, "the column device must not be cpu for device work")
    for name in ("pid", "tid", "self_ns"):
        require_rows(trace, ~work | nulls[name], f"the column {name} must be null for device work")
    nested = host & trace.rows("kind", *NESTED_KINDS) & ~nulls["tid"]
    require_rows(
        trace, nested == ~nulls["self_ns"], "self_ns must be set for NESTED_KINDS on host threads, and null otherwise"
    )


def _used_values(trace: Trace, column: str) -> list[str]:
    codes = trace.codes(column)
    return [codes.values[code] for code in np.unique(codes.codes[codes.codes >= 0])]


def _require_values(trace: Trace, column: str, allowed: Callable[[str], bool]) -> None:
    for value in _used_values(trace, column):
        require(allowed(value), f"{value!r} is not a valid {column}")


def _json(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return None


def check_tree(trace: Trace, own_tree: bool) -> None:
    """Check that a parent is a host event, in the process of its child, and precedes the child. Unless the source
    recorded the parents (``own_tree``), a parent must also be in the same thread and enclose its child in time."""
    parent, rows = trace.ints("parent"), np.arange(len(trace))
    require_rows(trace, (parent >= NO_ROW) & (parent < rows), "parent is not an earlier row")
    child = np.flatnonzero(parent != NO_ROW)
    above = parent[child]
    nests = ~trace.events["self_ns"].is_null().to_numpy()
    good = np.ones(len(trace), np.bool_)
    good[child] = (nests | trace.rows("kind", MEMORY))[child] & nests[above]
    for name in ("rank", "pid") if own_tree else ("rank", "pid", "tid"):
        good[child] &= trace.ints(name)[child] == trace.ints(name)[above]
    require_rows(trace, good, "the parent is not a host event of the same thread, or one of the two lacks self_ns")
    if not own_tree:
        start, end = trace.ints("start_ns"), trace.end_ns
        good[child] = (start[above] <= start[child]) & (end[child] <= end[above])
        require_rows(trace, good, "the parent does not enclose the event")


def check_self_times(trace: Trace) -> None:
    """Check that self time is not negative, and that it is the duration minus the time covered by direct children."""
    parent, self_ns, duration = trace.ints("parent"), trace.ints("self_ns"), trace.ints("dur_ns")
    nests = ~trace.events["self_ns"].is_null().to_numpy()
    require_rows(trace, ~nests | ((self_ns >= 0) & (self_ns <= duration)), "self_ns is not between 0 and dur_ns")
    child = np.flatnonzero(parent != NO_ROW)
    above = parent[child]
    start = np.maximum(trace.ints("start_ns")[child], trace.ints("start_ns")[above])
    end = np.minimum(trace.end_ns[child], trace.end_ns[above])
    covered = intervals.union_length_by(above, len(trace), start, end)
    require_rows(trace, ~nests | (self_ns + covered == duration), "self_ns + union of the children differs from dur_ns")


def check_launches(trace: Trace) -> None:
    """Check the launches (column ``launched_by``). Only device events may have a launch. The launch must be a host
    event of the same rank. A launch of the kind runtime or sync must have the correlation id of its device work."""
    launched_by, rows = trace.ints("launched_by"), len(trace)
    require_rows(trace, (launched_by >= NO_ROW) & (launched_by < rows), "launched_by is not a row")
    launched = np.flatnonzero(launched_by != NO_ROW)
    by = launched_by[launched]
    good = np.ones(rows, np.bool_)
    good[launched] = trace.host[by] & ~trace.rows("kind", *DEVICE_WORK)[by]
    require_rows(trace, good, "launched_by is not a host event")
    require_rows(trace, ~trace.host | (launched_by == NO_ROW), "the column launched_by must be null for host events")
    good[launched] = trace.ints("rank")[launched] == trace.ints("rank")[by]
    require_rows(trace, good, "launched_by is an event of another rank")
    same = trace.ints("correlation")[launched] == trace.ints("correlation")[by]
    good[launched] = same | ~trace.rows("kind", RUNTIME, SYNC)[by]
    require_rows(trace, good, "launched_by has a different correlation")


def check_steps(trace: Trace) -> None:
    """Check each event's step: it was recorded, a host event starts within it, device work has its launch's step."""
    step, rank, start = trace.ints("step"), trace.ints("rank"), trace.ints("start_ns")
    steps = trace.rows("kind", schema.STEP) & trace.host
    require_rows(trace, ~steps | (step >= 0), "a step has no number")
    require_rows(trace, (step < 0) | np.isin(step, step[steps]), "the step of an event was not recorded")
    inside = np.zeros(len(trace), np.bool_)
    for row in np.flatnonzero(steps):
        numbered = (step == step[row]) & (rank == rank[row])
        inside |= numbered & (start >= start[row]) & (start < trace.end_ns[row])
    require_rows(trace, ~trace.host | (step < 0) | steps | inside, "a host event starts outside its step")
    require_rows(trace, _same_as_launch(trace, step), "device work has a different step than its launch")


def check_phases(trace: Trace) -> None:
    """Check that all events in a span have the phase of the span, and that device work has the phase of its launch. An
    optimizer span with backward work in it has called a closure, so its events have phases of their own."""
    phases = trace.codes("phase")
    phase = phases.lookup(np.array([schema.PHASES.index(value) for value in phases.values], int), -1)
    other = schema.PHASES.index(schema.OTHER)
    parent = trace.ints("parent")
    above = np.where(parent == NO_ROW, -1, phase[parent])
    in_phase = (above >= 0) & (above != other)
    require_rows(trace, ~in_phase | (phase == above), "an event has a different phase than the span around it")
    for index, kind in enumerate(name for name in schema.PHASES if name != schema.OTHER):
        top = trace.host & trace.rows("kind", kind) & ~in_phase
        if kind == schema.OPTIMIZER:
            top[_with_closure(trace, np.flatnonzero(top & (phase != index)))] = False
        require_rows(trace, ~top | (phase == index), f"a {kind} span is not in the phase {kind}")
    require_rows(trace, _same_as_launch(trace, phase), "device work has a different phase than its launch")
    has_phases = bool((phase[trace.host] >= 0).any())
    nests = ~trace.events["self_ns"].is_null().to_numpy()
    good = ~nests | ((phase >= 0) == has_phases)
    require_rows(trace, good, "some events with self_ns have a phase, others have none")


def _with_closure(trace: Trace, spans: IntArray) -> IntArray:
    """Return the spans in which backward work of the same process starts."""
    backward = np.flatnonzero(trace.host & trace.rows("phase", schema.BACKWARD))
    start, end, rank, pid = trace.ints("start_ns"), trace.end_ns, trace.ints("rank"), trace.ints("pid")
    called = [
        ((rank[backward] == rank[span]) & (pid[backward] == pid[span])
         & (start[span] <= start[backward]) & (start[backward] < end[span])).any()
        for span in spans
    ]  # fmt: skip
    return spans[np.array(called, np.bool_)]


def _same_as_launch(trace: Trace, values: np.ndarray) -> BoolArray:
    launched_by = trace.ints("launched_by")
    return np.asarray((launched_by == NO_ROW) | (values == values[launched_by]), np.bool_)


def check_operator_names(trace: Trace) -> None:
    """Check that each ``op_name`` is one of perfkit's canonical names, and that only operators have one."""
    for name in _used_values(trace, "op_name"):
        require(is_canonical(name), f"{name!r} is not a canonical operator name")
    operators = trace.rows("kind", *schema.OPERATOR_KINDS)
    require_rows(trace, operators | (trace.codes("op_name").codes < 0), "an event that is no operator has an op_name")


def check_round_trip(trace: Trace, tmp_path: Path) -> None:
    """Check that a trace is unchanged after storing. pandas, polars and duckdb must read its Parquet file correctly."""
    path = write_trace(trace, tmp_path / f"round-trip{SUFFIX}")
    again = read_stored(path)
    require(again.meta == trace.meta, f"meta changed:\n{trace.meta}\n{again.meta}")
    require(again.quality == trace.quality, f"quality changed: {trace.quality} → {again.quality}")
    for column in schema.COLUMNS:
        same = plain(again.events, column.name).equals(plain(trace.events, column.name))
        require(same, f"column {column.name} changed")
    frame = import_module("pandas").read_parquet(path, dtype_backend="pyarrow")
    with import_module("duckdb").connect() as connection:
        relation = connection.sql("select * from read_parquet(?)", params=[str(path)]).to_arrow_table()
    for reader, table in (
        ("pandas", pa.Table.from_pandas(frame, preserve_index=False)),
        ("polars", import_module("polars").read_parquet(path).to_arrow()),
        ("duckdb", relation),
    ):
        require(table.num_rows == len(trace), f"{reader} reads {table.num_rows} of {len(trace)} rows")
        for name in schema.COLUMN_NAMES:
            require(name in table.column_names, f"{reader} does not read the column {name}")
            nulls = (table[name].null_count, trace.events[name].null_count)
            require(nulls[0] == nulls[1], f"{reader} reads {nulls[0]} nulls in {name}, not {nulls[1]}")
        for name in _INTEGER_COLUMNS:
            values = table[name].cast(pa.int64()).fill_null(-1).to_numpy()
            require(np.array_equal(values, trace.ints(name)), f"{reader} reads other values in {name} than were stored")


def plain(table: pa.Table, column: str) -> pa.Array:
    """Return a column in one chunk and without a dictionary, so that columns with equal values are equal."""
    values = table[column]
    decoded = values.cast(pa.string()) if pa.types.is_dictionary(values.type) else values
    return pa.chunked_array(decoded.chunks, decoded.type).combine_chunks()
