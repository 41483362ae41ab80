"""The view ``families``: numbers worked out by hand, and sums of real recordings compared with other views."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

import perfkit_core as perfkit
from perfkit_core.plugins.contracts import ViewRequest
from perfkit_core.trace.model.trace import Trace, concat_traces
from perfkit_core.views.builtin import VIEWS
from perfkit_core.views.merging import reduction
from tests.support.events import device, host, trace
from tests.support.tables import check_tables, view_table

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


def test_times_and_shares() -> None:
    """Host time is self time, which excludes launches. The names of the kernels determine the device times: device work
    belongs to the family of the work itself, in the row of the operator that launched it. Without device work, device
    times are unknown, and rows are sorted by host time."""
    without = trace([host("mm", "operator", 0, 5), host("conv", "operator", 10, 50)], names=NAMES)
    check_tables("views/families.txt", {
        "families": view_table(VIEW, _rank(0, 1)),
        "by operator": view_table(VIEW, _rank(0, 1), by=("operator",)),
        "without device work": view_table(VIEW, without),
    })  # fmt: skip


@pytest.mark.parametrize("by", [(), ("operator",), ("device",), ("operator", "device")])
def test_ranks_are_added(by: tuple[str, ...]) -> None:
    """The second rank has twice the times of the first rank. The merged table equals the table of the joined trace."""
    ranks = [_rank(0, 1), _rank(1, 2)]
    how, request = reduction(VIEW), ViewRequest(by=by)
    merged = how.merge([how.reduce(one, request) for one in ranks], request)
    one = view_table(VIEW, ranks[0], by=by)
    assert merged["self_cpu_ns"].tolist() == [3 * ns for ns in one["self_cpu_ns"]]
    assert merged["device_ns"].tolist() == [3 * ns for ns in one["device_ns"]]
    both = view_table(VIEW, concat_traces(ranks), by=by)
    pd.testing.assert_frame_equal(merged[list(both)], both, check_dtype=False)


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
        table = view_table(VIEW, found, by=by)
        assert (table["self_cpu_ns"].sum(), table["device_ns"].fillna(0).sum()) == (of_operators, of_device)
    tree = view_table(VIEW, found, by=("operator",))
    leaves = tree[tree["depth"] == 1]
    assert (leaves["self_cpu_ns"].sum(), leaves["device_ns"].fillna(0).sum()) == (of_operators, of_device)
