"""The view ``families``: numbers worked out by hand, and sums of real recordings compared with other views."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import perfkit_core as perfkit
from perfkit_core.plugins.contracts import ViewRequest
from perfkit_core.trace.model.trace import Trace, concat_traces
from perfkit_core.views import VIEWS
from perfkit_core.views.merging import reduction, table_of
from tests.support.events import device, host, trace

VIEW = next(view for view in VIEWS if view.name == "families")
NAMES = {"conv": "conv", "mm": "matmul", "mm_bwd": "matmul_grad", "copy": "copy"}.get


def _rank(rank: int, scale: int) -> Trace:
    rows = [
        host("conv", "operator", 0, 200 * scale, phase="forward"),
        host("launch a", "runtime", 10 * scale, 5 * scale, correlation=1),
        host("mm", "operator", 50 * scale, 50 * scale),
        host("launch b", "runtime", 60 * scale, 5 * scale, correlation=2),
        host("mine", "operator", 300 * scale, 40 * scale),
        host("launch c", "runtime", 310 * scale, 5 * scale, correlation=3),
        host("mm_bwd", "operator", 400 * scale, 30 * scale),
        device("nchwToNhwcKernel", "kernel", 500 * scale, 7 * scale, 1),
        device("sgemm", "kernel", 600 * scale, 100 * scale, 2),
        device("Memcpy", "memcpy", 700 * scale, 11 * scale, 3),
        device("sgemm", "kernel", 800 * scale, 13 * scale),
    ]
    return trace(rows, rank=rank, names=NAMES)


def _table(found: Trace, **asked: Any) -> pd.DataFrame:
    return table_of(VIEW, found, ViewRequest(**asked))


def _rows(table: pd.DataFrame, columns: str) -> list[tuple[Any, ...]]:
    return [tuple(row[name] for name in columns.split()) for row in table.to_dict("records")]


COLUMNS = "name calls self_cpu_ns device_calls device_ns"


def test_times_and_shares() -> None:
    """Host time is self time, which excludes launches. The names of the kernels determine the device times."""
    found = _table(_rank(0, 1))
    assert _rows(found, COLUMNS) == [
        ("matmul", 2, (50 - 5) + 30, 2, 113),
        ("copy", 0, 0, 1, 11),
        ("layout", 0, 0, 1, 7),
        ("conv", 1, 200 - 50 - 5, 0, 0),
        ("(no family)", 1, 40 - 5, 0, 0),
    ]
    shares = found.set_index("name")
    assert shares["device_ratio"].tolist() == [113 / 131, 11 / 131, 7 / 131, 0, 0]
    assert shares.loc["conv", "self_cpu_ratio"] == 145 / (75 + 145 + 35)


def test_families_open_into_operators() -> None:
    """Device work belongs to the family of the work itself. Its row is below the operator that launched it."""
    found = _table(_rank(0, 1), by=("operator",))
    assert _rows(found, "depth " + COLUMNS) == [
        (0, "matmul", 2, 75, 2, 113),
        (1, "mm", 1, 45, 1, 100),
        (1, "(no operator)", 0, 0, 1, 13),
        (1, "mm_bwd", 1, 30, 0, 0),
        (0, "copy", 0, 0, 1, 11),
        (1, "mine", 0, 0, 1, 11),
        (0, "layout", 0, 0, 1, 7),
        (1, "conv", 0, 0, 1, 7),
        (0, "conv", 1, 145, 0, 0),
        (1, "conv", 1, 145, 0, 0),
        (0, "(no family)", 1, 35, 0, 0),
        (1, "mine", 1, 35, 0, 0),
    ]


@pytest.mark.parametrize("by", [(), ("operator",), ("device",), ("operator", "device")])
def test_ranks_are_added(by: tuple[str, ...]) -> None:
    """The second rank has twice the times of the first rank. The merged table equals the table of the joined trace."""
    ranks = [_rank(0, 1), _rank(1, 2)]
    how, request = reduction(VIEW), ViewRequest(by=by)
    merged = how.merge([how.reduce(one, request) for one in ranks], request)
    one = _table(ranks[0], by=by)
    assert merged["self_cpu_ns"].tolist() == [3 * ns for ns in one["self_cpu_ns"]]
    assert merged["device_ns"].tolist() == [3 * ns for ns in one["device_ns"]]
    both = _table(concat_traces(ranks), by=by)
    pd.testing.assert_frame_equal(merged[list(both)], both, check_dtype=False)


def test_without_device_work_rows_are_sorted_by_host_time() -> None:
    """Device times are unknown, not 0."""
    found = _table(trace([host("mm", "operator", 0, 5), host("conv", "operator", 10, 50)], names=NAMES))
    assert found["name"].tolist() == ["conv", "matmul"]
    assert found[["device_calls", "device_ns", "device_ratio"]].isna().all(axis=None)


@pytest.mark.parametrize(
    "file",
    ["torch/h100-bert-small.json.gz", "torch/mi300x-resnet-act-checkpoint-steps.json.gz",
     "paddle/gpu-synthetic/gpu1.pb", "paddle/cpu-3.3.1/to_static/cycle0.pb"],
)  # fmt: skip
def test_sums_are_those_of_the_other_views(file: str, traces: Path) -> None:
    """Host time sums to the self time of the view ``operators``. Device time sums to the kernels, memcpy and memset of
    the event table. Groupings do not change the sums."""
    found = perfkit.load(traces / file)
    of_operators = perfkit.summarize(found, "operators")["self_cpu_ns"].sum()
    frame = found.to_pandas()
    of_device = frame.loc[frame["kind"].isin(["kernel", "memcpy", "memset"]), "dur_ns"].sum()
    for by in ((), ("phase",), ("step", "device")):
        table = _table(found, by=by)
        assert (table["self_cpu_ns"].sum(), table["device_ns"].fillna(0).sum()) == (of_operators, of_device)
    tree = _table(found, by=("operator",))
    leaves = tree[tree["depth"] == 1]
    assert (leaves["self_cpu_ns"].sum(), leaves["device_ns"].fillna(0).sum()) == (of_operators, of_device)
