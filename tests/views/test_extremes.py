"""Views of traces with a very large number of one thing. The numbers are right, and the time does not grow
quadratically."""

from __future__ import annotations

import functools
from collections.abc import Iterator

import numpy as np
import pytest

from perfkit_core.plugins.manager import get_plugins
from perfkit_core.trace.model.trace import Trace
from tests.support import extreme
from tests.support.tables import view_rows, view_table

MADE = {
    "one instant": lambda: extreme.one_instant(50_000),
    "deep": lambda: extreme.nested(20_000, 10_000),
    "names": lambda: extreme.all_named_apart(20_000),
    "steps": lambda: extreme.steps(5_000),
    "ranks": lambda: extreme.steps(5, ranks=300),
    "streams": lambda: extreme.streams(20_000),
    "devices": lambda: extreme.devices(1_000, 5),
}


@functools.cache
def made(name: str) -> Trace:
    return MADE[name]()


@pytest.fixture(scope="module", autouse=True)
def _dropped() -> Iterator[None]:
    yield
    made.cache_clear()


@pytest.mark.parametrize("name", MADE)
def test_every_view_answers(name: str) -> None:
    for view in get_plugins().views().values():
        view_table(view, made(name))


def test_events_of_one_instant_all_count() -> None:
    assert view_rows("operators", made("one instant"), "calls total_cpu_ns")[0] == (50_000, 0)


def test_a_tower_of_operators_keeps_its_depth() -> None:
    trace = made("deep")  # two stacks, and each call has a self time of 2 ns
    assert view_table("operator_tree", trace)["depth"].max() == 9_999
    assert view_table("operators", trace)["self_cpu_ns"].sum() == 2 * 20_000
    assert view_rows("operator_kinds", trace, "name calls total_cpu_ns")[0] == ("other", 2, 2 * 2 * 10_000)


def test_nested_calls_of_a_kind_are_found_at_any_depth() -> None:
    count = 10_000  # from the outermost to the innermost: a, b, a, b, …
    trace = extreme.trace_of(count, start_ns=np.arange(count), dur_ns=2 * count - 2 * np.arange(count), self_ns=2,
                             parent=np.arange(count) - 1, op_name=(["add", "multiply"], np.arange(count) % 2),
                             name=(["a", "b"], np.arange(count) % 2))  # fmt: skip
    kinds = view_rows("operator_kinds", trace, "depth name calls")
    assert {row for row in kinds if row[0] == 0} == {(0, "add", 1), (0, "multiply", 1)}


def test_every_name_is_a_row() -> None:
    assert view_table("operators", made("names"))["calls"].tolist() == [1] * 20_000


def test_each_of_many_steps_is_worked_out() -> None:
    """In each step, a kernel runs at 650–750 and a copy at 700–800."""
    trace = made("steps")
    assert set(view_rows("steps", trace, "device_launched_ns forward_ns")) == {(150, 400)}
    parts = dict(view_rows("partition", trace, "category total_ns"))
    assert (parts["device_compute"], parts["exposed_copy"]) == (5_000 * 100, 5_000 * 50)
    assert sum(parts.values()) == 5_000 * extreme.STEP_NS
    assert set(view_rows("input_pipeline", trace, "copy_ns hidden_copy_ns")) == {(100, 50)}


def test_each_of_many_ranks_has_its_own_clock_and_memory() -> None:
    trace, count = made("ranks"), 1_500
    columns = "kernels busy_ns span_ns busy_in_steps_ratio"
    assert view_rows("device", trace, columns) == [(count, count * 100, count * extreme.STEP_NS, 0.1)]
    places = view_rows("memory_places", trace, "allocations frees peak_growth_bytes")
    assert places == [(5, 5, 512)] * 300


def test_kernels_of_many_streams_are_united() -> None:
    """A kernel begins every ns and takes 10 ns."""
    assert view_rows("device", made("streams"), "busy_ns") == [(20_000 + 9,)]


def test_each_of_many_devices_is_a_row() -> None:
    assert view_rows("device", made("devices"), "busy_ns") == [(50,)] * 1_000


def test_masks_of_single_devices_are_not_made(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    rows = Trace.rows
    monkeypatch.setattr(Trace, "rows", lambda trace, *names: asked.append(names) or rows(trace, *names))
    view_table("device", extreme.devices(1_000, 2))
    assert len(asked) < 50
