"""Tests of the gate: nothing is computed from events and metadata that cannot be, whatever their source."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from perfkit_core.api import summarize
from perfkit_core.errors import SourceError
from perfkit_core.trace.assembly.assemble import assemble
from perfkit_core.trace.assembly.draft import RecordedEvents
from perfkit_core.trace.model import schema, side_tables
from perfkit_core.trace.model.gate import checked_side_table
from perfkit_core.trace.model.meta import Device, TraceMeta
from perfkit_core.trace.model.trace import Trace
from tests.support.events import codes
from tests.support.small_trace import small_trace

ROOT = Path(__file__).parents[3]
META = TraceMeta(source="made by hand", format="test", framework="fw")


def recorded(**columns: Any) -> pa.Table:
    """Return three recorded events, with some columns replaced."""
    cells = {
        "name": pa.array(["a", "b", "c"]).dictionary_encode(),
        "kind": pa.array(["operator"] * 3).dictionary_encode(),
        "start_ns": pa.array([0, 10, 20]),
        "dur_ns": pa.array([5, 5, 5]),
        "device": pa.array(["cpu"] * 3).dictionary_encode(),
        "pid": pa.array([1, 1, 1]),
        "tid": pa.array([1, 1, 1]),
    }
    return pa.table({name: cell for name, cell in (cells | columns).items() if cell is not None})


def outside(*indices: int, codes: pa.DataType = pa.int32()) -> pa.Array:  # noqa: B008
    """Return texts of which some are not in the dictionary."""
    return pa.DictionaryArray.from_arrays(pa.array(indices, codes), pa.array(["operator"]), safe=False)


@pytest.mark.parametrize(
    ("columns", "why"),
    [
        ({"name": outside(0, 7, 0)}, "the column name is damaged"),
        ({"kind": outside(0, -9, 0)}, "the column kind is damaged"),
        ({"kind": pa.array(["operator", "zzz", None])}, "the column kind is empty in row 2"),
        ({"kind": pa.array(["operator", "zzz", "kernel"])}, "unknown word in row 1: 'zzz'"),
        ({"start_ns": None}, "columns are missing: start_ns"),
        ({"start_ns": pa.array([0, 2**63 - 3, 1])}, "the end of row 1 does not fit in 64 bits"),
        ({"dur_ns": pa.array([0, -1, 1])}, "the column dur_ns is negative in row 1"),
        ({"start_ns": pa.array([0.5, 1.0, 2.0])}, "truncated"),
        ({"dur_ns": pa.array([[1]] * 3)}, "the column dur_ns has the type list"),
        ({"kind": pa.array([["operator"]] * 3)}, "the column kind has the type list"),
        ({"stack": pa.array([1.5] * 3)}, "the column stack has the type double"),
        ({"kind": outside(0, 7, 0, codes=pa.uint64())}, "the column kind is damaged"),
        ({"step": pa.array([2**64 - 1] * 3, pa.uint64())}, "not in range"),
        ({"stack": pa.array([b"\xff", b"", b""]).view(pa.string()).dictionary_encode()}, "the column stack is damaged"),
    ],
)
def test_recorded_events_that_cannot_be_are_refused(columns: dict[str, Any], why: str) -> None:
    with pytest.raises(SourceError, match=why):
        assemble(RecordedEvents(recorded(**columns)), META)


@pytest.mark.parametrize("parent", [[-1, 0, 3], [-1, -2, 0], [0, 1]])
def test_recorded_parents_are_rows(parent: list[int]) -> None:
    with pytest.raises(SourceError, match="a parent is no row of the table"):
        assemble(RecordedEvents(recorded(), np.array(parent)), META)


def test_recorded_parents_in_a_circle_are_no_parents() -> None:
    trace = assemble(RecordedEvents(recorded(), np.array([1, 2, 0])), META)
    assert trace.ints("parent").tolist() == [-1, -1, 0]


@pytest.mark.parametrize(
    ("name", "cells", "why"),
    [
        ("parent", [0] * 20, "which is not an earlier row"),
        ("launched_by", [99] * 20, "which is not a row"),
        ("start_ns", [20 - i for i in range(20)], "starts before the row above"),
        ("rank", [0, 1] * 10, "the events of a rank are not adjacent"),
        ("rank", [-5] * 20, "the column rank is negative"),
    ],
)
def test_a_table_of_a_plugin_that_cannot_be_is_refused(name: str, cells: list[int], why: str) -> None:
    small = small_trace()
    field = schema.SCHEMA.field(name)
    column = pa.array((cells * len(small))[: len(small)], field.type)
    events = small.events.set_column(schema.COLUMN_NAMES.index(name), field, column)
    with pytest.raises(SourceError, match=why):
        Trace(events, small.meta.__class__(source="s", format="f"))


def test_a_column_that_occurs_twice_is_refused() -> None:
    small = small_trace()
    with pytest.raises(SourceError, match="columns with the same name: kind"):
        Trace(small.events.append_column("kind", small.events["kind"]), small.meta)
    columns = recorded()
    with pytest.raises(SourceError, match="columns with the same name: tid"):
        assemble(RecordedEvents(columns.append_column("tid", columns["pid"])), META)


@pytest.mark.parametrize("rows", [[5, -(2**63)], [5, 5], [-1, 2], [2, 20]])
def test_rows_of_a_side_table_ascend(rows: list[int]) -> None:
    """Also if the difference of two rows leaves 64 bits."""
    declared = side_tables.ALL[side_tables.COLLECTIVES]
    table = declared.table({"row": rows, "name": ["all_reduce"] * 2, "on": ["host"] * 2})
    with pytest.raises(ValueError, match="the rows do not ascend"):
        checked_side_table(declared, table, 20)


def test_a_dictionary_may_have_a_text_twice() -> None:
    names = pa.DictionaryArray.from_arrays(pa.array([0, 1, 2], pa.int32()), pa.array(["a", "b", "a"]))
    trace = assemble(RecordedEvents(recorded(name=names)), META)
    assert trace.codes("name").values == ["a", "b"]
    assert len(summarize(trace, "operators")) == 2


def test_columns_that_are_put_into_a_trace_are_checked() -> None:
    small = small_trace()
    with pytest.raises(ValueError, match="which is not an earlier row"):
        small.with_ints(parent=np.arange(len(small)))
    with pytest.raises(ValueError, match="columns of 1 rows"):
        small.with_columns(bytes=pa.array([1]))


def test_metadata_that_cannot_be_is_left_out_and_reported() -> None:
    devices = (Device("cuda:0", 5, 2**70, {"a": 1}), Device(["x"], "y"), Device("cuda:1", "H100"))  # type: ignore[arg-type]
    meta = TraceMeta(source="s", format="f", ranks=(2**40,), world_size=-1, window_ns=(0, 2**70), devices=devices)
    trace = assemble(RecordedEvents(recorded()), meta)
    assert codes(trace) >= {"impossible-metadata"}
    message = next(finding.message for finding in trace.quality if finding.code == "impossible-metadata")
    assert "ranks = (1099511627776,)" in message
    assert (trace.meta.ranks, trace.meta.world_size) == ((), None)
    assert [(device.id, device.name) for device in trace.meta.devices] == [("cuda:0", None), ("cuda:1", "H100")]


def test_only_the_trace_packages_make_columns() -> None:
    """A trace is made of an Arrow table, which passes the gate, or of columns. No other package can make these, and no
    test does, so that compiled loops only get columns that passed."""
    makers = {"TableColumns", "StoredColumns", "DraftColumns", "JoinedColumns", "PartColumns", "ChangedColumns"}
    calls = {
        str(path.relative_to(ROOT))
        for folder in ("perfkit_core", "perfkit_torch", "perfkit_paddle", "tests", "benchmarks", "docs", "examples")
        for path in (ROOT / folder).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] in makers
    }
    assert "perfkit_core/trace/model/trace.py" in calls
    others = {path for path in calls if not path.startswith("perfkit_core/trace/")}
    assert others == {"tests/testing/test_conformance.py"}, "it makes traces that the conformance suite must refuse"
