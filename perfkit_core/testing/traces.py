"""Does a Trace keep the promises of the schema?

Do parents enclose, does self time add up, do launches point at the host?

Steps, phases and canonical operator names: do the assigned ones agree with the events that define them?
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa

from perfkit_core.algorithms import intervals
from perfkit_core.algorithms.arrays import NO_ROW, BoolArray
from perfkit_core.model import schema
from perfkit_core.model.schema import DEVICE_WORK, MEMORY, NESTED_KINDS, RUNTIME, SYNC
from perfkit_core.model.trace import Trace
from perfkit_core.operators.names import is_canonical
from perfkit_core.testing.require import require, require_rows


def check_tree(trace: Trace, own_tree: bool) -> None:
    """Parents come before their children, are host events of the same process, and enclose them in time and thread."""
    parent, rows = trace.ints("parent"), np.arange(len(trace))
    require_rows(trace, (parent >= NO_ROW) & (parent < rows), "parent is not an earlier row")
    child = np.flatnonzero(parent != NO_ROW)
    above = parent[child]
    nests = ~trace.events["self_ns"].is_null().to_numpy()
    good = np.ones(len(trace), np.bool_)
    good[child] = (nests | trace.rows("kind", MEMORY))[child] & nests[above]
    for name in ("rank", "pid") if own_tree else ("rank", "pid", "tid"):
        good[child] &= trace.ints(name)[child] == trace.ints(name)[above]
    require_rows(trace, good, "parent is not a nesting host event of the same thread")
    if not own_tree:
        good[child] = (trace.ints("start_ns")[above] <= trace.ints("start_ns")[child]) & (
            trace.end_ns[child] <= trace.end_ns[above]
        )
        require_rows(trace, good, "parent does not enclose")


def check_self_times(trace: Trace) -> None:
    """Self time is the duration less the union of the direct children, so never negative."""
    parent, own, duration = trace.ints("parent"), trace.ints("self_ns"), trace.ints("dur_ns")
    nests = ~trace.events["self_ns"].is_null().to_numpy()
    require_rows(trace, ~nests | ((own >= 0) & (own <= duration)), "self_ns is not between 0 and dur_ns")
    child = np.flatnonzero(parent != NO_ROW)
    above = parent[child]
    start = np.maximum(trace.ints("start_ns")[child], trace.ints("start_ns")[above])
    end = np.minimum(trace.end_ns[child], trace.end_ns[above])
    covered = intervals.union_length_by(above, len(trace), start, end)
    require_rows(trace, ~nests | (own + covered == duration), "self_ns + union of the children is not dur_ns")


def check_launches(trace: Trace) -> None:
    """Only device events are launched, by host events of the same rank; runtime calls share the correlation."""
    launched_by, rows = trace.ints("launched_by"), len(trace)
    require_rows(trace, (launched_by >= NO_ROW) & (launched_by < rows), "launched_by is not a row")
    launched = np.flatnonzero(launched_by != NO_ROW)
    by = launched_by[launched]
    good = np.ones(rows, np.bool_)
    good[launched] = trace.host[by] & ~trace.rows("kind", *DEVICE_WORK)[by]
    require_rows(trace, good, "launched_by is not a host event")
    require_rows(trace, ~trace.host | (launched_by == NO_ROW), "a host event is launched")
    good[launched] = trace.ints("rank")[launched] == trace.ints("rank")[by]
    require_rows(trace, good, "launched by another rank")
    same = trace.ints("correlation")[launched] == trace.ints("correlation")[by]
    good[launched] = same | ~trace.rows("kind", RUNTIME, SYNC)[by]
    require_rows(trace, good, "launched by a call with another correlation")


_SPANS = tuple(phase for phase in schema.PHASES if phase != schema.OTHER)


def check_steps(trace: Trace) -> None:
    """Every number is that of a recorded step; host events start inside it; device work has that of its launch."""
    step = trace.ints("step")
    steps = trace.rows("kind", schema.STEP) & trace.host
    require_rows(trace, ~steps | (step >= 0), "a step without a number")
    require_rows(trace, (step < 0) | np.isin(step, step[steps]), "the number of a step that was not recorded")
    require_rows(trace, ~trace.host | (step < 0) | steps | _starts_inside(trace), "a host event outside its step")
    require_rows(trace, _same_as_launch(trace, step), "device work in another step than its launch")


def _starts_inside(trace: Trace) -> BoolArray:
    """True for events that start in one of the steps (of their rank) that have their number."""
    step, rank, start = trace.ints("step"), trace.ints("rank"), trace.ints("start_ns")
    inside = np.zeros(len(trace), np.bool_)
    for row in np.flatnonzero(trace.rows("kind", schema.STEP) & trace.host):
        mine = (step == step[row]) & (rank == rank[row])
        inside |= mine & (start >= start[row]) & (start < trace.end_ns[row])
    return inside


def check_phases(trace: Trace) -> None:
    """A phase covers the subtree of the span that marks it, and the device work launched in there."""
    phase = trace.codes("phase").lookup(
        np.array([schema.PHASES.index(v) for v in trace.codes("phase").values], int), -1
    )
    parent = trace.ints("parent")
    child = np.flatnonzero(parent != NO_ROW)
    above = phase[parent[child]]
    good = np.ones(len(trace), np.bool_)
    good[child] = (above < 0) | (above == schema.PHASES.index(schema.OTHER)) | (phase[child] == above)
    require_rows(trace, good, "an event has another phase than the span around it")
    for index, kind in enumerate(_SPANS):
        top = trace.host & trace.rows("kind", kind) & ~_inside_phase(trace, phase)
        require_rows(trace, ~top | (phase == index), f"a {kind} span that is not in the phase {kind}")
    require_rows(trace, _same_as_launch(trace, phase), "device work in another phase than its launch")
    told = bool((phase[trace.host] >= 0).any())
    nests = ~trace.events["self_ns"].is_null().to_numpy()
    require_rows(
        trace, ~nests | ((phase >= 0) == told), "phases are known for some events that nest, and null for others"
    )


def _inside_phase(trace: Trace, phase: np.ndarray) -> BoolArray:
    parent = trace.ints("parent")
    above = np.where(parent == NO_ROW, -1, phase[parent])
    return np.asarray((above >= 0) & (above != schema.PHASES.index(schema.OTHER)), np.bool_)


def _same_as_launch(trace: Trace, values: np.ndarray) -> BoolArray:
    launched_by = trace.ints("launched_by")
    return np.asarray((launched_by == NO_ROW) | (values == values[launched_by]), np.bool_)


def check_operator_names(trace: Trace) -> None:
    """Canonical names come from the vocabulary, and only operators have one."""
    names = trace.codes("op_name")
    for code in np.unique(names.codes[names.codes >= 0]):
        require(is_canonical(names.values[code]), f"not a canonical operator name: {names.values[code]!r}")
    operators = trace.rows("kind", *schema.OPERATOR_KINDS)
    require_rows(trace, operators | (names.codes < 0), "op_name of an event that is no operator")


_DEVICE: Final = re.compile(r"cpu|[a-z][a-z0-9_]*:\d+")
_CODE: Final = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
_NOTHING: Final = frozenset({"", "null", "None", "nan", "NaN", "<NA>", "[]", "{}"})
_TEXTS: Final = tuple(c.name for c in schema.COLUMNS if pa.types.is_dictionary(c.type))


def check_trace(trace: Trace, *, own_tree: bool = False) -> None:
    """Everything a Trace promises. ``own_tree``: the source recorded parents itself, so they need not enclose in time.

    Raises AssertionError.
    """
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
    """Columns, types and nullability are the schema's; rows are sorted by start; durations are not negative."""
    found = trace.events.schema.remove_metadata()
    require(found.equals(schema.SCHEMA), f"the columns are not those of the schema:\n{found}")
    trace.events.validate(full=True)
    for column in schema.COLUMNS:
        nulls = trace.events[column.name].null_count
        require(column.nullable or not nulls, f"{nulls} nulls in {column.name}, which may not be null")
    start = trace.ints("start_ns")
    require(bool((start[1:] >= start[:-1]).all()), "events are not sorted by start_ns")
    require_rows(trace, trace.ints("dur_ns") >= 0, "negative durations")
    _require_values(trace, "kind", lambda value: value in schema.KINDS)
    _require_values(trace, "phase", lambda value: value in schema.PHASES)
    _require_values(trace, "device", lambda value: _DEVICE.fullmatch(value) is not None)


def check_meta(trace: Trace) -> None:
    """Source, format and framework are named, ranks agree with the events, findings are unique and readable."""
    meta = trace.meta
    require(bool(meta.framework), "meta.framework is not set")
    require(bool(meta.source and meta.format), "meta.source and meta.format must be set")
    require(meta.clock in ("epoch", "relative"), f"unknown clock {meta.clock!r}")
    require(not len(trace) or meta.window_ns is not None, "meta.window_ns is not set")
    recorded = set(trace.events["rank"].unique().to_pylist()) - {None}
    require(recorded <= set(meta.ranks), f"meta.ranks {meta.ranks} lacks ranks of the events {recorded}")
    codes = {finding.code for finding in trace.quality}
    require(len(set(trace.quality)) == len(trace.quality), "a finding is there twice")
    for finding in trace.quality:
        require(_CODE.fullmatch(finding.code) is not None, f"not a stable code: {finding.code!r}")
        require(bool(finding.message.strip()), f"finding {finding.code} says nothing")
    has_steps = bool((trace.rows("kind", schema.STEP) & trace.host).any())
    require(has_steps != ("no-steps" in codes), "finding no-steps contradicts the events")
    has_work = bool(trace.rows("kind", *DEVICE_WORK).any())
    require(has_work != ("no-device-events" in codes), "finding no-device-events contradicts the events")


def check_missing(trace: Trace) -> None:
    """What was not recorded is null: no empty texts, no words for nothing, no columns of nothing but zeros."""
    for name in _TEXTS:
        codes = trace.codes(name)
        used = {codes.values[code] for code in np.unique(codes.codes[codes.codes >= 0])}
        allowed = {""} if name == "name" else set()
        require(not (used & _NOTHING - allowed), f"{name} holds {used & _NOTHING} where null is meant")
    for name in ("bytes", "address", "total_bytes", "flops", "correlation", "sequence"):
        values = trace.events[name].drop_null()
        zeros = len(values) == len(trace) and len(values) > 0 and not np.any(values.to_numpy())
        require(not zeros, f"{name} is 0 in all rows: missing is null")
    for name in ("shapes", "dtypes"):
        _require_values(trace, name, _is_json)
    for value in trace.events["args"].drop_null().to_pylist():
        require(isinstance(_json(value), dict) and value != "{}", f"args is not a JSON object: {value[:200]}")


def check_places(trace: Trace) -> None:
    """Host events have no stream; device work has no process or thread, and no self time."""
    host = trace.host
    nulls = {name: trace.events[name].is_null().to_numpy() for name in ("pid", "tid", "stream", "self_ns")}
    require_rows(trace, ~host | nulls["stream"], "host events on a stream")
    work = trace.rows("kind", *DEVICE_WORK)
    require_rows(trace, ~work | ~host, "device work on the host")
    for name in ("pid", "tid", "self_ns"):
        require_rows(trace, ~work | nulls[name], f"device work with a {name}")
    nested = host & trace.rows("kind", *NESTED_KINDS) & ~nulls["tid"]
    require_rows(trace, nested == ~nulls["self_ns"], "exactly the host events that nest have a self time")


def _require_values(trace: Trace, column: str, allowed: Callable[[str], bool]) -> None:
    codes = trace.codes(column)
    for code in np.unique(codes.codes[codes.codes >= 0]):
        require(allowed(codes.values[code]), f"not a value of {column}: {codes.values[code]!r}")


def _is_json(text: str) -> bool:
    return isinstance(_json(text), (list, dict))


def _json(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return None
