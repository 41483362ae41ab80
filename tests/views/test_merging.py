"""Merging ranks: the merged tables equal the tables of all ranks in one trace, in any order of the ranks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from perfkit_core.plugins.contracts import View, ViewRequest
from perfkit_core.ranks.reduce import split
from perfkit_core.readers.load import load_one
from perfkit_core.trace.model.trace import Trace, concat_traces
from perfkit_core.views.builtin import VIEWS
from perfkit_core.views.merging import reduction, table_of
from tests.support.events import device, host, trace
from tests.support.tables import check_tables

VIEW = {view.name: view for view in VIEWS}
LISTED = ("graph", "fluid_head")
"""Views whose rows describe a rank, or contain numbers that count within a rank. These views have no table of all ranks
to compare with."""

RANKS = [
    [
        host("step 0", "step", 0, 1000, step=0),
        host("mm", "operator", 10, 100),
        host("launch", "runtime", 20, 10, correlation=1),
        host("add", "operator", 30, 20),
        device("k", "kernel", 200, 300, correlation=1),
        device("c", "memcpy", 600, 10, bytes=1000, copy_kind="HtoD"),
    ],
    [
        host("step 0", "step", 0, 3000, step=0),
        host("mm", "operator", 10, 51),
        host("mm", "operator", 100, 60),
        host("launch", "runtime", 110, 10, correlation=1),
        host("mul", "operator", 300, 8),
        device("k", "kernel", 400, 101, correlation=1),
        device("c", "memcpy", 600, 40, bytes=None, copy_kind="HtoD"),
        device("c", "memcpy", 700, 30, bytes=9000, copy_kind="HtoD"),
    ],
]


def merged(view: View, ranks: list[Trace], **asked: Any) -> pd.DataFrame:
    request = ViewRequest(**asked)
    how = reduction(view)
    return how.merge([how.reduce(one, request) for one in ranks], request)


@pytest.fixture(scope="module")
def two() -> list[Trace]:
    return [trace(of_rank, rank=rank) for rank, of_rank in enumerate(RANKS)]


def test_two_small_ranks(two: list[Trace]) -> None:
    """Averages and shares are those of both ranks. A speed only counts copies with recorded bytes, and a share of the
    steps is of the steps of all ranks. The second rank of annotations has no label, but its step counts in the
    denominator. Trees merge by their paths."""
    label = [host("step 0", "step", 0, 1000, step=0), host("label", "annotation", 0, 500)]
    bare = [host("step 0", "step", 0, 3000, step=0), host("op", "operator", 0, 10)]
    tree = [host("a", "operator", 0, 100), host("x", "operator", 10, 30), host("b", "operator", 200, 90)]
    other = [host("b", "operator", 0, 50), host("x", "operator", 10, 20), host("x", "operator", 40, 5)]
    tables = {name: merged(VIEW[name], two) for name in ("operators", "memcpy", "overview", "device")}
    tables["annotations"] = merged(VIEW["annotations"], [trace(label, rank=0), trace(bare, rank=1)])
    tables["operator_tree"] = merged(VIEW["operator_tree"], [trace(tree, rank=0), trace(other, rank=1)])
    check_tables("views/merged.txt", tables)


@pytest.mark.parametrize("view", VIEWS, ids=lambda view: view.name)
def test_one_rank_merged_alone_is_its_own_table(view: View, two: list[Trace]) -> None:
    for request in _requests(view):
        alone = table_of(view, two[1], request)
        how = reduction(view)
        found = how.merge([how.reduce(two[1], request)], request)
        same(found.drop(columns="rank") if "rank" in found and "rank" not in alone else found, alone)


@pytest.fixture(scope="module")
def real(traces: Path) -> list[Trace]:
    return [load_one(path) for path in sorted((traces / "torch" / "dlrm-8xv100").glob("*.json"))]


@pytest.mark.parametrize("view", VIEWS, ids=lambda view: view.name)
def test_merged_ranks_are_the_table_of_one_trace_of_all(view: View, real: list[Trace]) -> None:
    """Compare eight merged real ranks with the same view of all events in one trace."""
    whole = concat_traces(real)
    for request in _requests(view):
        if view.name in LISTED or (view.name == "fluid_events" and request.by):
            continue
        found = reduction(view).merge([reduction(view).reduce(one, request) for one in real], request)
        # in the joined trace, native events of two ranks at the same instant are one call
        if view.name == "overview" and request.native:
            found, whole_table = found.drop(columns="calls"), table_of(view, whole, request).drop(columns="calls")
        else:
            whole_table = table_of(view, whole, request)
        if view.name == "fluid_events":  # two copy kinds have the same label, so merging by paths makes them one row
            found, whole_table = (_of_top(each) for each in (found, whole_table))
        same(found, whole_table)


@pytest.mark.parametrize("view", VIEWS, ids=lambda view: view.name)
def test_the_order_of_ranks_does_not_change_a_cell(view: View, real: list[Trace]) -> None:
    how, request = reduction(view), ViewRequest()
    partials = [how.reduce(one, request) for one in real[:3]]
    same(how.merge(partials, request), how.merge(partials[::-1], request))


@pytest.mark.parametrize("name", LISTED)
def test_views_without_a_table_of_all_are_listed_by_rank(name: str, real: list[Trace]) -> None:
    by = ("instance",) if name == "fluid_head" else ()
    found = merged(VIEW[name], real[:2], by=by)
    assert next(iter(found.columns)) == "rank"
    for rank in (0, 1):
        own = table_of(VIEW[name], real[rank], ViewRequest(by=by))
        same(found[found["rank"] == rank].drop(columns="rank"), own)


def test_a_trace_of_several_ranks_splits_into_its_parts(real: list[Trace]) -> None:
    for found, was in zip(split(concat_traces(real[:3])), real, strict=False):
        assert found.meta.ranks == was.meta.ranks
        assert found.events.to_pylist() == was.events.to_pylist()


def _requests(view: View) -> list[ViewRequest]:
    native = [ViewRequest(native=True)] if view.computed.native else []
    return [ViewRequest(), *native, *(ViewRequest(by=(name,)) for name in view.groupings if name in _GROUPINGS)]


_GROUPINGS = ("phase", "rank", "edge", "category")


def _of_top(table: pd.DataFrame) -> pd.DataFrame:
    return table[table["depth"] < 3]


def same(one: pd.DataFrame, other: pd.DataFrame) -> None:
    """Compare two tables. Rows with equal sort keys may be in any order, and shares may differ by rounding."""
    left, right = (_canonical(table) for table in (one, other))
    pd.testing.assert_frame_equal(left, right, check_exact=False, rtol=1e-12, atol=0)


def _canonical(table: pd.DataFrame) -> pd.DataFrame:
    found = table.reset_index(drop=True)
    for name in found.columns:
        if found[name].dtype == object:
            found[name] = found[name].where(found[name].notna(), pd.NA)
    if "depth" in found:
        found["path"] = pd.Series(_paths(found), dtype=object)
    keys = sorted(map(str, found.columns), key=lambda name: (found[name].dtype != object, name))
    order = found[keys].astype("string").fillna("~").sort_values(keys, kind="stable").index
    return found.loc[order].reset_index(drop=True)


def _paths(table: pd.DataFrame) -> list[str]:
    above: list[str] = []
    paths = []
    for depth, name in zip(table["depth"], table["name"], strict=True):
        above = [*above[:depth], str(name)]
        paths.append("/".join(above))
    return paths
