"""Views return the columns that they declare."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import pandas as pd
import pytest

from perfkit_core import load
from perfkit_core.api import summarize
from perfkit_core.plugins.contracts import Grouped, Listed, Merged, View, ViewRequest
from perfkit_core.plugins.manager import get_plugins
from perfkit_core.ranks.reduce import split
from perfkit_core.trace.model.columns import DEVICE, Average, Share
from perfkit_core.trace.model.trace import Trace, concat_traces, with_rank
from perfkit_core.views.builtin import VIEWS
from perfkit_core.views.merging import reduction, table_of
from tests.support.events import device, host, trace
from tests.support.paths import DATA
from tests.support.small_trace import small_trace


@functools.cache
def traces() -> list[Trace]:
    events = [
        host("step 0", "step", 0, 1000, step=0),
        host("load", "dataloader", 0, 8),
        host("mm", "operator", 10, 100),
        host("launch", "runtime", 20, 10, correlation=1),
        host("alloc", "memory", 25, 0, bytes=512, address=64, total_bytes=512),
        device("k", "kernel", 200, 300, correlation=1),
        device("c", "memcpy", 600, 10, bytes=1000, copy_kind="HtoD"),
    ]
    return [small_trace(), concat_traces([with_rank(trace(events), rank) for rank in range(2)])]


def requests(view: View) -> Iterator[ViewRequest]:
    for by in ((), *((grouping,) for grouping in view.groupings), view.groupings[-2:]):
        yield ViewRequest(by=by)
    if view.computed.native:
        yield ViewRequest(by=view.groupings[-2:], native=True)


def tables(view: View) -> Iterator[pd.DataFrame]:
    how = reduction(view)
    for found in traces():
        for request in requests(view):
            yield table_of(view, found, request)
            yield how.merge([how.reduce(one, request) for one in split(found)], request)


def is_of_unit(column: pd.Series[Any], unit: str) -> bool:
    known = column.dropna()
    if unit == "ratio":
        return pd.api.types.is_float_dtype(column) or known.empty
    return pd.api.types.is_integer_dtype(column) or known.empty or unit == "bytes_per_s"


@pytest.mark.parametrize("view", VIEWS, ids=lambda view: view.name)
def test_every_column_of_a_view_is_declared_with_its_unit(view: View) -> None:
    declared = {known.name: known for known in view.columns}
    assert len(declared) == len(view.columns)
    how = view.computed
    listed_by = {"rank"} if isinstance(how, Listed) or getattr(how, "together_only", False) else set()
    for table in tables(view):
        assert set(map(str, table.columns)) <= {*declared, *listed_by}
        for name in set(map(str, table.columns)) & set(declared):
            known = declared[name]
            if known.unit:
                assert is_of_unit(table[name], known.unit), (name, table[name].dtype)
                assert known.unit == "count" or name == known.unit or name.endswith(f"_{known.unit}")


RECORDINGS = ("torch-mlp.json.gz", "paddle-mlp.pb", "gpu/collectives/run", "gpu/memory-growth/run")


@pytest.mark.parametrize("name", RECORDINGS)
def test_no_view_of_a_recording_has_an_undeclared_column(name: str) -> None:
    recorded = load(DATA / name)
    for view in get_plugins().views().values():
        declared = {column.name for column in view.columns}
        last = (view.groupings[-1],) if view.groupings else ()
        for request in (ViewRequest(by=last), ViewRequest(native=view.computed.native)):
            functions = reduction(view)
            undeclared = set(functions.table(recorded, request)) - declared
            merged = functions.merge([functions.reduce(recorded, request)], request)
            undeclared |= set(merged) - declared - {"rank"}
            assert not undeclared, (view.name, request)


@pytest.mark.parametrize("view", VIEWS, ids=lambda view: view.name)
def test_declarations_name_columns_that_are_there(view: View) -> None:
    names = {known.name for known in view.columns}
    for known in view.columns:
        others = {known.own} - {""}
        if isinstance(known.merge, Average):
            others.add(known.merge.of)
        if isinstance(known.merge, Share) and isinstance(view.computed, (Grouped, Merged)):
            more = {extra.name for extra in view.computed.columns}
            others |= {part for part in (known.merge.part, known.merge.of, known.merge.column) if part} - more
        assert others <= names, known.name
        assert set(known.by) <= set(view.groupings), known.name
    assert {view.order} <= names if isinstance(view.order, str) else set(view.order or ()) <= names


def on_device(view: View, table: pd.DataFrame) -> pd.DataFrame:
    names = [name for name in map(str, table) if view.column(name).place == DEVICE and "bytes" not in name]
    names = [name for name in names if name != "device_cadence_ns"]  # it is the time from a step to the next
    return table[[name for name in names if pd.api.types.is_numeric_dtype(table[name])]]


@pytest.mark.parametrize("view", VIEWS, ids=lambda view: view.name)
def test_device_columns_are_null_only_without_a_device(view: View) -> None:
    """The native tables of the frameworks print 0 in both cases."""
    events = [
        host("step 0", "step", 0, 1000, step=0),
        host("forward", "forward", 5, 600, phase="forward"),
        host("label", "annotation", 10, 200),
        host("mm", "operator", 20, 100),
        host("launch", "runtime", 30, 10, correlation=1),
        host("add", "operator", 300, 100),
        host("memcpy", "runtime", 400, 10, correlation=2),
    ]
    work = [device("k", "kernel", 200, 300, correlation=1)]
    without = on_device(view, summarize(trace(events), view.name))
    assert without.isna().all(axis=None)
    with_work = summarize(trace(events + work), view.name)
    rows = with_work[with_work["calls"].notna()] if "calls" in with_work else with_work
    if view.name not in ("device", "distributed"):  # these have rows of the host
        assert on_device(view, rows).notna().all(axis=None)
    if view.computed.native:
        native = summarize(trace(events), view.name, native=True)
        native = native[native["calls"].notna()] if "calls" in native else native
        zeros = on_device(view, native).drop(columns="self_device_ratio", errors="ignore")  # torch prints NaN
        assert view.name == "device" or (zeros == 0).all(axis=None)
