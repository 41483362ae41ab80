"""Tests that the recordings in the repository, read without an installed framework, give the frameworks' own
numbers."""

from __future__ import annotations

import json

import pytest

from perfkit_core.api import summarize
from perfkit_core.plugins.contracts import ViewRequest
from perfkit_core.readers.load import load
from perfkit_core.views.operators import annotations as user_annotations
from perfkit_core.views.operators import operators
from tests.support.paths import DATA


@pytest.mark.parametrize("name", ["torch-mlp.json.gz", "paddle-mlp.pb"])
def test_operator_rows_equal_the_native_ones(name: str) -> None:
    native = json.loads((DATA / f"{name.partition('.')[0]}.native.json").read_text())
    trace = load(DATA / name)
    table = operators.table(trace, ViewRequest()).set_index("name")
    assert len(table) > 10
    for operator, row in table.iterrows():
        for column, value in native[operator].items():
            assert row[column] == value, (operator, column)


def test_every_native_torch_row_is_in_one_of_our_tables() -> None:
    native = json.loads((DATA / "torch-mlp.native.json").read_text())
    trace = load(DATA / "torch-mlp.json.gz")
    mine = {*operators.table(trace, ViewRequest())["name"], *user_annotations.table(trace, ViewRequest())["name"]}
    assert set(native) - mine == {"ProfilerStep*"}


def test_both_paddle_files_describe_the_same_run() -> None:
    """The JSON file has the same operators, calls and exact durations as the protobuf file."""
    exact, rounded = (
        operators.table(load(DATA / name), ViewRequest()).set_index("name").sort_index()
        for name in ("paddle-mlp.pb", "paddle-mlp.json.gz")
    )
    assert exact["calls"].to_dict() == rounded["calls"].to_dict()
    assert exact["total_cpu_ns"].to_dict() == rounded["total_cpu_ns"].to_dict()


@pytest.mark.parametrize("name", ["torch-mlp.json.gz", "paddle-mlp.pb"])
def test_steps_sum_to_all_steps_and_the_average_divides_them(name: str) -> None:
    """The numbers of all steps are the sums of the numbers of each step. The average is the sum divided by the number
    of steps."""
    run = load(DATA / name)
    steps = summarize(run, "steps")["step"].to_list()
    assert len(steps) >= 2
    sums = ["calls", "self_cpu_ns", "total_cpu_ns"]
    whole = summarize(run, "operators", steps=steps).set_index("name")[sums]
    each = summarize(run, "operators", steps=steps, by="step")
    assert each.groupby("name")[sums].sum().to_dict() == whole.to_dict()
    one = summarize(run, "operators", steps=steps[:1]).set_index("name")[sums]
    assert each[each["step"] == steps[0]].set_index("name")[sums].to_dict() == one.to_dict()
    average = summarize(run, "operators", average=True).set_index("name")
    assert (average["calls"] * len(steps)).to_dict() == whole["calls"].to_dict()
    off = (average["total_cpu_ns"] * len(steps) - whole["total_cpu_ns"]).abs()
    assert (off <= len(steps) / 2).all()
