"""Tests of the tables that compare two runs: symmetry, complete sums, and comparisons of different frameworks."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from perfkit_core.base.algorithms.arrays import NO_ROW
from perfkit_core.compare.align.align import items
from perfkit_core.compare.align.operator_owner import owners
from perfkit_core.compare.comparison import compare, operator_times
from perfkit_core.compare.windows import whole_run
from perfkit_core.readers.load import load
from perfkit_core.trace.model.schema import OPERATOR_KINDS
from perfkit_core.trace.model.trace import Trace
from tests.support.paths import DATA


@pytest.fixture(scope="module")
def torch_run() -> Trace:
    return load(DATA / "torch-mlp.json.gz")


@pytest.fixture(scope="module")
def paddle_run() -> Trace:
    return load(DATA / "paddle-mlp.pb")


def test_a_run_equals_itself(torch_run: Trace) -> None:
    found = compare(torch_run, torch_run)
    for table in (found.step_time, found.phases, found.overview):
        assert (table["difference_ns"] == 0).all()
    assert (found.operators[["difference_cpu_ns", "difference_device_ns"]] == 0).all(axis=None)
    assert found.matched_share["base"] == found.matched_share["other"] == {"cpu": 1.0, "device": None, "step": 1.0}


def test_swapping_sides_changes_signs_only(torch_run: Trace, paddle_run: Trace) -> None:
    there, back = compare(torch_run, paddle_run), compare(paddle_run, torch_run)
    keys = ["kind", "place"]
    left, right = (found.overview.set_index(keys).sort_index() for found in (there, back))
    assert (left["difference_ns"] == -right["difference_ns"]).all()
    left, right = (found.operators.set_index("name").sort_index() for found in (there, back))
    assert (left["difference_cpu_ns"] == -right["difference_cpu_ns"]).all()
    assert there.matched_share["base"] == back.matched_share["other"]


def test_operator_rows_sum_to_the_operator_time(torch_run: Trace, paddle_run: Trace) -> None:
    """The rows sum to the time of the outermost operators, so nothing is lost or counted twice."""
    for trace in (torch_run, paddle_run):
        table = operator_times(items(trace, whole_run(trace), owners(trace), {}), 1)
        operator = trace.rows("kind", *OPERATOR_KINDS) & trace.host
        parent, inside = trace.ints("parent"), np.zeros(len(trace), np.bool_)
        for row in np.flatnonzero(operator):  # the definition, event by event
            above = parent[row]
            while above != NO_ROW and not inside[row]:
                inside[row] = operator[above]
                above = parent[above]
        assert table["cpu_ns"].sum() == trace.ints("dur_ns")[operator & ~inside].sum()


def test_across_frameworks_the_same_model_matches(torch_run: Trace, paddle_run: Trace) -> None:
    """Both frameworks run the same MLP. Matrix products, activation and their gradients have the same names and calls.
    In every table, times and calls are per step."""
    found = compare(torch_run, paddle_run)
    assert found.per_step
    rows = found.operators.set_index("name")
    for name, calls in {"matmul": 2, "relu": 1, "relu_grad": 1, "matmul_grad": 2, "sum": 1}.items():
        assert rows.loc[name, "found"] == "both"
        assert rows.loc[name, ["base_calls", "other_calls"]].tolist() == [calls, calls]
    for table, row in ((found.phases, {"phase": "step"}), (found.overview, {"kind": "step", "place": "host"})):
        (step,) = table.merge(pd.DataFrame([row])).to_dict("records")
        assert (step["base_calls"], step["other_calls"]) == (1, 1)
    aligned = found.alignment.rows
    assert aligned.loc[aligned["operator"] == "matmul", "base_calls"].sum() == 2
    assert list(found.phases["phase"]) == ["step", "dataloader", "forward", "backward", "optimizer", "other"]
    by_name = rows.loc[rows["found"] == "both", "base_cpu_ns"].sum() / rows["base_cpu_ns"].sum()
    assert found.matched_share["base"]["cpu"] >= by_name > 0.5


def test_without_steps_whole_runs_are_compared(torch_run: Trace, traces: Path) -> None:
    stepless = load(traces / "torch" / "alexnet-cuda-sync.json.gz")
    found = compare(torch_run, stepless)
    assert not found.per_step
    assert found.step_time.empty
    kernels = found.overview.set_index(["kind", "place"]).loc[("kernel", "device")]
    assert kernels["other_calls"] == 79
    assert found.matched_share["other"]["device"] is not None
