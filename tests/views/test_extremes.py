"""Views of traces with a very large number of one thing. The numbers are right, and the time does not grow
quadratically."""

from __future__ import annotations

import numpy as np
import pytest

from perfkit_core import summarize
from perfkit_core.plugins.contracts import ViewRequest
from perfkit_core.plugins.manager import get_plugins
from perfkit_core.trace.model.trace import Trace
from perfkit_core.views.merging import table_of
from tests.support import extreme

MADE = {
    "one instant": lambda: extreme.one_instant(50_000),
    "deep": lambda: extreme.nested(20_000, 10_000),
    "names": lambda: extreme.all_named_apart(20_000),
    "steps": lambda: extreme.steps(5_000),
    "ranks": lambda: extreme.steps(5, ranks=300),
    "streams": lambda: extreme.streams(20_000),
    "devices": lambda: extreme.devices(5_000, 5),
}


@pytest.mark.parametrize("name", MADE)
def test_every_view_answers(name: str) -> None:
    trace = MADE[name]()
    for view in get_plugins().views().values():
        table_of(view, trace, ViewRequest())


def test_events_of_one_instant_all_count() -> None:
    row = summarize(extreme.one_instant(50_000), "operators").iloc[0]
    assert (row["calls"], row["total_cpu_ns"]) == (50_000, 0)


def test_a_tower_of_operators_keeps_its_depth() -> None:
    trace = extreme.nested(20_000, 10_000)  # two stacks, and each call has a self time of 2 ns
    assert summarize(trace, "operator_tree")["depth"].max() == 9_999
    assert summarize(trace, "operators")["self_cpu_ns"].sum() == 2 * 20_000
    kind = summarize(trace, "operator_kinds").iloc[0]
    assert (kind["name"], kind["calls"], kind["total_cpu_ns"]) == ("other", 2, 2 * 2 * 10_000)


def test_nested_calls_of_a_kind_are_found_at_any_depth() -> None:
    count = 10_000  # from the outermost to the innermost: a, b, a, b, …
    trace = extreme.trace_of(count, start_ns=np.arange(count), dur_ns=2 * count - 2 * np.arange(count), self_ns=2,
                             parent=np.arange(count) - 1, op_name=(["add", "multiply"], np.arange(count) % 2),
                             name=(["a", "b"], np.arange(count) % 2))  # fmt: skip
    kinds = summarize(trace, "operator_kinds")
    assert kinds[kinds["depth"] == 0].set_index("name")["calls"].to_dict() == {"add": 1, "multiply": 1}


def test_every_name_is_a_row() -> None:
    table = summarize(extreme.all_named_apart(20_000), "operators")
    assert len(table) == 20_000
    assert (table["calls"] == 1).all()


def test_each_of_many_steps_is_worked_out() -> None:
    trace = extreme.steps(5_000)
    steps = summarize(trace, "steps")
    assert (steps["device_launched_ns"] == 150).all()  # kernel 650–750, copy 700–800
    assert (steps["forward_ns"] == 400).all()
    parts = summarize(trace, "partition").set_index("category")["total_ns"]
    assert parts["device_compute"] == 5_000 * 100
    assert parts["exposed_copy"] == 5_000 * 50
    assert parts.sum() == 5_000 * extreme.STEP_NS
    copies = summarize(trace, "input_pipeline")
    assert (copies["copy_ns"] == 100).all()
    assert (copies["hidden_copy_ns"] == 50).all()


def test_each_of_many_ranks_has_its_own_clock_and_memory() -> None:
    trace = extreme.steps(5, ranks=300)
    device = summarize(trace, "device").iloc[0]
    assert (device["kernels"], device["busy_ns"], device["span_ns"]) == (1_500, 1_500 * 100, 1_500 * extreme.STEP_NS)
    assert device["busy_in_steps_ratio"] == 0.1
    places = summarize(trace, "memory_places")
    assert len(places) == 300
    assert set(places["allocations"]) == set(places["frees"]) == {5}
    assert set(places["peak_growth_bytes"]) == {512}


def test_kernels_of_many_streams_are_united() -> None:
    busy = summarize(extreme.streams(20_000), "device")["busy_ns"].iloc[0]
    assert busy == 20_000 + 9  # a kernel begins every ns and takes 10 ns


def test_each_of_many_devices_is_a_row() -> None:
    table = summarize(extreme.devices(5_000, 5), "device")
    assert len(table) == 5_000
    assert set(table["busy_ns"]) == {50}


def test_masks_of_single_devices_are_not_made(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    rows = Trace.rows
    monkeypatch.setattr(Trace, "rows", lambda trace, *names: asked.append(names) or rows(trace, *names))
    summarize(extreme.devices(1_000, 2), "device")
    assert len(asked) < 50
