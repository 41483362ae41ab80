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
from perfkit_core.views import VIEWS
from perfkit_core.views.merging import reduction, table_of
from tests.support.events import device, host, trace

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


def rows(table: pd.DataFrame, columns: str, key: str = "name") -> dict[Any, tuple[Any, ...]]:
    found = {row[key]: tuple(row[name] for name in columns.split()) for row in table.to_dict("records")}
    return {name: tuple(None if pd.isna(cell) else cell for cell in cells) for name, cells in found.items()}


@pytest.fixture(scope="module")
def two() -> list[Trace]:
    return [trace(of_rank, rank=rank) for rank, of_rank in enumerate(RANKS)]


def test_sums_extremes_averages_and_shares_worked_out_by_hand(two: list[Trace]) -> None:
    found = merged(VIEW["operators"], two)
    columns = "calls total_cpu_ns avg_cpu_ns min_cpu_ns max_cpu_ns self_cpu_ns total_device_ns"
    assert rows(found, columns) == {
        "mm": (3, 211, 70, 51, 100, 211 - 20 - 10 - 10, 401),  # self time is without add and the launches
        "add": (1, 20, 20, 20, 20, 20, 0),
        "mul": (1, 8, 8, 8, 8, 8, 0),
        "(no launch recorded)": (None, None, None, None, None, None, 80),
    }
    shares = found.set_index("name")["total_cpu_ratio"]
    assert shares["mm"] == pytest.approx(211 / (100 + 51 + 60 + 8), abs=1e-15)


def test_a_speed_only_counts_copies_with_recorded_bytes(two: list[Trace]) -> None:
    assert rows(merged(VIEW["memcpy"], two), "calls bytes total_device_ns bytes_per_s", key="copy_kind") == {
        "HtoD": (3, 10_000, 80, 10_000 * 10**9 // 40)
    }


def test_a_share_of_the_steps_is_of_the_steps_of_all_ranks(two: list[Trace]) -> None:
    found = merged(VIEW["overview"], two).set_index("kind")
    assert found["time_ns"]["kernel"] == 401
    assert found["ratio"]["kernel"] == 401 / 4000
    (busy,) = merged(VIEW["device"], two).to_dict("records")
    assert (busy["busy_ns"], busy["span_ns"], busy["busy_in_steps_ratio"]) == (401, 4000, 401 / 4000)


def test_a_rank_without_rows_counts_in_the_whole() -> None:
    """The second rank has no label, but its step counts in the denominator."""
    labelled = [host("step 0", "step", 0, 1000, step=0), host("label", "annotation", 0, 500)]
    bare = [host("step 0", "step", 0, 3000, step=0), host("op", "operator", 0, 10)]
    found = merged(VIEW["annotations"], [trace(labelled, rank=0), trace(bare, rank=1)])
    assert found["total_cpu_ratio"].tolist() == [500 / 4000]


def test_trees_merge_by_their_paths() -> None:
    one = [host("a", "operator", 0, 100), host("x", "operator", 10, 30), host("b", "operator", 200, 90)]
    other = [host("b", "operator", 0, 50), host("x", "operator", 10, 20), host("x", "operator", 40, 5)]
    found = merged(VIEW["operator_tree"], [trace(one, rank=0), trace(other, rank=1)])
    cells = found[["depth", "name", "calls", "total_cpu_ns", "min_cpu_ns"]].to_numpy().tolist()
    assert cells == [[0, "b", 2, 140, 50], [1, "x", 2, 25, 5], [0, "a", 1, 100, 100], [1, "x", 1, 30, 30]]
    assert found["cpu_ratio"].tolist() == [140 / 240, 25 / 140, 100 / 240, 30 / 100]


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
