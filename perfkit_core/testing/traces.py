"""Does a Trace keep the promises of the schema?"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa

from perfkit_core import schema
from perfkit_core.schema import DEVICE_WORK, NESTED_KINDS
from perfkit_core.testing.require import require, require_rows
from perfkit_core.testing.tree import check_launches, check_self_times, check_tree
from perfkit_core.testing.vocabulary import check_operator_names, check_phases, check_steps
from perfkit_core.trace import Trace

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
