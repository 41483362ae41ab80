"""The memory views over small traces. The expected numbers were computed by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from perfkit_core.errors import UsageError
from perfkit_core.plugins.contracts import ViewRequest
from perfkit_core.testing.conformance import check_view
from perfkit_core.testing.traces import check_trace
from perfkit_core.trace.model.trace import Trace, concat_traces
from perfkit_core.views import VIEWS
from perfkit_core.views.merging import table_of
from tests.support.events import host, trace

VIEW = {view.name: view for view in VIEWS if view.name.startswith("memory") and view.name != "memory_manipulation"}
A, B, C, D, OLD = 0x1000, 0x2000, 0x3000, 0x4000, 0x5000


def mem(start: int, change: int, address: int | None, total: int | None = None, **more: Any) -> dict[str, Any]:
    """Return an allocation of process 1 on the host, or a free if ``change`` is negative. ``total`` is the total that
    the framework records."""
    place = {"bytes": change, "address": address, "total_bytes": total, "device": "cpu", "pid": 1, "tid": 1}
    return {"name": "[memory]", "kind": "memory", "start_ns": start, "dur_ns": 0, **place, **more}


# 1,000 bytes are allocated before the recording, and 300 of them are freed in step 1. In step 0, one block of relu is
# not freed.
ROWS = [
    host("step 0", "step", 0, 100, step=0),
    host("linear", "operator", 10, 30, phase="forward", shapes="[[2,3]]"),
    host("empty", "operator", 12, 8),
    mem(15, +100, A, 1100),
    host("relu", "operator", 50, 10),
    mem(55, +50, B, 1150),
    mem(70, -100, A, 1050),
    host("step 1", "step", 100, 100, step=1),
    host("linear", "operator", 110, 30, phase="forward", shapes="[[4,3]]"),
    host("empty", "operator", 112, 8),
    mem(115, +100, A, 1150),
    mem(150, -300, OLD, 850),
    mem(170, -100, A, 750),
    host("relu", "operator", 180, 10),
    mem(185, +50, C, 800),
    host("step 2", "step", 200, 100, step=2),
    mem(210, -50, C, 750),
    host("relu", "operator", 220, 10),
    mem(225, +50, C, 800),
    mem(350, +7, D, 810),  # the total grows by 10, 3 bytes more than this event explains
]
BETWEEN, OUTSIDE = "(in a step, outside operators)", "(outside host events)"
BEFORE, UNEXPLAINED = "(allocated before the recording)", "(not explained by the events)"


@pytest.fixture(scope="module")
def small() -> Trace:
    return trace(ROWS)


def rows(found: Trace, view: str, columns: str, **request: Any) -> list[tuple[Any, ...]]:
    """Return the given columns of all rows. NA is None."""
    table = table_of(VIEW[view], found, ViewRequest(**request))
    return [tuple(None if pd.isna(cell) else cell for cell in row) for row in table[columns.split()].to_numpy(object)]


def test_the_trace_itself_is_sound(small: Trace) -> None:
    check_trace(small)


@pytest.mark.parametrize("name", VIEW)
def test_every_view_keeps_the_contract_of_views(small: Trace, name: str) -> None:
    check_view(VIEW[name], small)
    with pytest.raises(UsageError, match="step 7 was not recorded"):
        table_of(VIEW[name], small, ViewRequest(steps=(7,)))


@pytest.mark.parametrize("name", VIEW)
def test_without_memory_events_every_view_is_empty_and_says_why(name: str) -> None:
    found = trace([host("step 0", "step", 0, 100, step=0), host("mm", "operator", 10, 20)])
    assert table_of(VIEW[name], found, ViewRequest()).empty
    assert "no memory events were recorded" in str(VIEW[name].explain_empty(found))
    for options, cause in (({}, "although"), ({"profile_all_threads": True}, "records none with profile_all_threads")):
        with_memory = found.with_meta(options={"profile_memory": True, **options})
        assert cause in str(VIEW[name].explain_empty(with_memory))


# -- by operator -------------------------------------------------------------------------------------------------------

COUNTS = "name allocations frees allocated_bytes freed_bytes increase_bytes"


def test_each_event_counts_once_at_the_innermost_operator(small: Trace) -> None:
    assert set(rows(small, "memory", COUNTS)) == {
        ("empty", 2, 0, 200, 0, 200),
        ("relu", 3, 0, 150, 0, 150),
        (BETWEEN, 0, 4, 0, 550, -550),
        (OUTSIDE, 1, 0, 7, 0, 7),
    }
    assert set(rows(small, "memory", "device type")) == {("cpu", "allocated")}


def test_the_operator_owns_memory_or_else_the_nearest_event() -> None:
    found = trace(
        [
            host("add", "operator", 0, 50),
            host("add kernel", "operator_detail", 10, 20),
            mem(15, 8, A),
            host("label", "annotation", 60, 20),
            mem(65, 4, B),
        ]
    )
    assert set(rows(found, "memory", "name allocated_bytes")) == {("add", 8), ("label", 4)}


def test_memory_by_phase_step_thread_and_category(small: Trace) -> None:
    assert set(rows(small, "memory", "name phase allocated_bytes", by=("phase",))) == {
        ("empty", "forward", 200), ("relu", "other", 150), (BETWEEN, "other", 0), (OUTSIDE, None, 7),
    }  # fmt: skip
    by_step = rows(small, "memory", "name step increase_bytes", by=("step",))
    assert {row for row in by_step if row[0] == BETWEEN} == {(BETWEEN, 0, -100), (BETWEEN, 1, -400), (BETWEEN, 2, -50)}
    assert (OUTSIDE, None, 7) in by_step
    assert {row[0] for row in rows(small, "memory", "tid", by=("thread",))} == {1}
    with_category = trace([host("mm", "operator", 0, 50, category="cpu_op"), mem(5, 8, A)])
    assert rows(with_category, "memory", "name category", by=("category",)) == [("mm", "cpu_op")]


def test_memory_by_module_takes_the_nearest_event_that_knows_it() -> None:
    inside = [host("net", "forward", 0, 100, module="net.0"), host("mm", "operator", 10, 50), mem(20, 8, A)]
    found = trace([*inside, mem(200, 4, B)])
    by_module = dict(rows(found, "memory", "module allocated_bytes", by=("module",)))
    assert by_module == {inside[0]["module"]: 8, None: 4}


def test_filters_count_only_what_matches(small: Trace) -> None:
    assert rows(small, "memory", "name allocations", pattern="^relu$", steps=(0, 1)) == [("relu", 2)]
    assert rows(small, "memory", "name", device="cuda") == []
    with pytest.raises(UsageError, match="not a regular expression"):
        rows(small, "memory", "name", pattern="(")


NATIVE = [
    host("step 0", "step", 0, 100, step=0, category="ProfileStep"),
    host("add dygraph", "operator", 10, 50, category="Operator"),
    host("add kernel launch", "operator_detail", 20, 30, category="DygraphKernelLaunch"),
    mem(25, 8, A, 8, category="Allocate"),
    host("add compute", "operator_detail", 30, 10, category="OperatorInner"),
    mem(35, 4, B, 12, category="Allocate"),
    host("add infer", "operator_detail", 52, 5, category="OperatorInner"),
    mem(53, 2, C, 14, category="Allocate"),
    mem(70, -8, A, 6, category="Free"),
    mem(200, -4, B, 2, category="Free"),
]


def test_native_operators_include_children_and_inner_parts() -> None:
    """Memory of direct children counts twice (8 bytes). Memory two levels below the operator (4 bytes) and events
    outside do not count."""
    found = trace(NATIVE)
    assert set(rows(found, "memory", COUNTS, native=True)) == {
        ("add dygraph", 2, 0, 10, 0, 10),
        ("add kernel launch", 1, 0, 8, 0, 8),
        ("step 0", 0, 1, 0, 8, -8),
    }
    assert set(rows(found, "memory", COUNTS)) == {
        ("add dygraph", 3, 0, 14, 0, 14),
        (BETWEEN, 0, 1, 0, 8, -8),
        (OUTSIDE, 0, 1, 0, 4, -4),
    }


def test_without_such_a_native_summary_native_is_ours(small: Trace) -> None:
    assert len(rows(small, "memory", "increase_bytes", native=True)) > 0
    assert sum(row[0] for row in rows(small, "memory", "increase_bytes", native=True)) == -193


# -- levels ------------------------------------------------------------------------------------------------------------

PLACES = ("rank device allocations frees start_bytes peak_bytes peak_time_ns end_bytes growth_bytes peak_growth_bytes "
          "peak_reserved_bytes")  # fmt: skip


def test_values_of_places_computed_by_hand(small: Trace) -> None:
    assert rows(small, "memory_places", PLACES) == [(None, "cpu", 6, 4, 1000, 1150, 55, 810, -193, 150, None)]
    assert rows(small, "memory_places", PLACES, steps=(2,)) == [(None, "cpu", 1, 1, 800, 800, 185, 800, 0, 0, None)]


def test_the_peak_may_lie_before_the_first_event() -> None:
    found = trace([host("mm", "operator", 100, 10), mem(105, -30, A, 70), mem(108, 20, B, 90)])
    assert rows(found, "memory_places", PLACES) == [(None, "cpu", 1, 1, 100, 100, 0, 90, -10, 0, None)]
    assert rows(found, "memory_peak", "name blocks bytes ratio") == [(BEFORE, None, 100, 1.0)]


def test_the_curve_follows_each_event(small: Trace) -> None:
    columns = "time_ns step change_bytes growth_bytes allocated_bytes unexplained_bytes"
    assert rows(small, "memory_curve", columns) == [
        (0, None, 0, 0, 1000, None),
        (15, 0, 100, 100, 1100, 0),
        (55, 0, 50, 150, 1150, 0),
        (70, 0, -100, 50, 1050, 0),
        (115, 1, 100, 150, 1150, 0),
        (150, 1, -300, -150, 850, 0),
        (170, 1, -100, -250, 750, 0),
        (185, 1, 50, -200, 800, 0),
        (210, 2, -50, -250, 750, 0),
        (225, 2, 50, -200, 800, 0),
        (350, None, 7, -193, 810, 3),
    ]
    assert rows(small, "memory_curve", "time_ns allocated_bytes", steps=(2,)) == [(210, 750), (225, 800)]


def test_without_totals_growth_is_known_and_level_is_not() -> None:
    found = trace([host("mm", "operator", 0, 50), mem(10, 30, A), mem(20, -10, B), mem(30, -30, A)])
    assert rows(found, "memory_curve", "growth_bytes allocated_bytes") == [
        (0, None),
        (30, None),
        (20, None),
        (-10, None),
    ]
    assert rows(found, "memory_places", PLACES) == [(None, "cpu", 1, 2, None, None, 10, None, -10, 30, None)]


def reserve(text: str) -> str:
    return f'{{"place":"Place(gpu:0)","current_reserved":{text},"peak_allocated":99,"peak_reserved":5000}}'


def test_the_reserve_of_an_allocator_is_counted_apart() -> None:
    """A chunk of 4,096 bytes is reserved, and its first 64 bytes are allocated. Then both are freed."""
    cuda = {"device": "cuda:0"}
    found = trace(
        [
            host("mm", "operator", 0, 50),
            mem(10, 4096, A, 0, category="ReservedAllocate", args=reserve("4096"), **cuda),
            mem(11, 64, A, 64, category="Allocate", args=reserve("4096"), **cuda),
            mem(20, -64, A, 0, category="Free", args=reserve("4096"), **cuda),
            mem(30, -4096, A, 0, category="ReservedFree", args=reserve("0"), **cuda),
        ]
    )
    assert rows(found, "memory", "name device type allocations frees allocated_bytes freed_bytes") == [
        ("mm", "cuda:0", "reserved", 1, 1, 4096, 4096),
        ("mm", "cuda:0", "allocated", 1, 1, 64, 64),
    ]
    curve = "change_bytes allocated_bytes reserved_bytes unexplained_bytes"
    assert rows(found, "memory_curve", curve) == [
        (0, 0, None, None), (0, 0, 4096, 0), (64, 64, 4096, 0), (-64, 0, 4096, 0), (0, 0, 0, 0),
    ]  # fmt: skip
    assert rows(found, "memory_places", PLACES) == [(None, "cuda:0", 1, 1, 0, 64, 11, 0, 0, 64, 4096)]
    process = "process_peak_bytes process_peak_reserved_bytes"
    assert rows(found, "memory_places", process) == [(99, 5000)]
    checks = "old_frees repeated_allocations resized_frees without_address"
    assert rows(found, "memory_checks", checks) == [(0, 0, 0, 0)]


def test_a_reserve_of_zero_in_every_event_was_not_measured() -> None:
    found = trace([host("mm", "operator", 0, 50), mem(10, 8, A, 8, args='{"Total Reserved":0}')])
    assert rows(found, "memory_curve", "reserved_bytes") == [(None,), (None,)]


# -- blocks ------------------------------------------------------------------------------------------------------------


def test_alive_at_the_peak(small: Trace) -> None:
    peak = "name device blocks bytes ratio"
    assert rows(small, "memory_peak", peak) == [
        ("linear", "cpu", 1, 100, 100 / 1150),
        ("relu", "cpu", 1, 50, 50 / 1150),
        (BEFORE, "cpu", None, 1000, 1000 / 1150),
    ]
    assert rows(small, "memory_peak", "name blocks bytes", steps=(2,)) == [("relu", 2, 100), (BEFORE, None, 700)]
    by_shape = rows(small, "memory_peak", "name shapes bytes", by=("shape",), steps=(1,), pattern="linear|relu")
    assert set(by_shape) == {("linear", "[[4,3]]", 100), ("relu", None, 50)}


def test_alive_at_the_peak_by_step_and_phase(small: Trace) -> None:
    found = rows(small, "memory_peak", "name step phase bytes", by=("step", "phase"), steps=(1,))
    assert set(found) == {("linear", 1, "forward", 100), ("relu", 0, "other", 50), (BEFORE, None, None, 1000)}


@pytest.mark.parametrize("recorded", [True, False])
def test_alive_at_the_peak_by_stack(recorded: bool) -> None:
    """The stack was recorded with the operator, or consists of the frames around the operator."""
    stack = {"stack": "net.py(9): forward"} if recorded else {}
    frame = [] if recorded else [host("net.py(9): forward", "python", 0, 100)]
    found = trace([*frame, host("mm", "operator", 10, 50, **stack), host("empty", "operator", 12, 8), mem(15, 8, A)])
    assert rows(found, "memory_peak", "name stack bytes", by=("stack",)) == [("mm", "net.py(9): forward", 8)]


ODD = [
    host("mm", "operator", 0, 100),
    mem(10, 10, A, 10),
    mem(20, 20, A, 30),  # the free of this block was not recorded
    mem(30, -20, A, 10),
    mem(40, -20, A, -10),  # freed twice
    mem(50, 5, B, -5),
    mem(60, -6, B, -11),
]


def test_events_that_contradict_each_other_are_counted() -> None:
    columns = ("events unexplained_changes unexplained_bytes old_frees old_freed_bytes repeated_allocations "
               "resized_frees without_address")  # fmt: skip
    assert rows(trace(ODD), "memory_checks", columns) == [(6, 0, 0, 1, 20, 1, 1, 0)]
    assert rows(trace([*ODD, mem(70, 9, None, 2)]), "memory_checks", columns) == [(7, 1, 4, 1, 20, 1, 1, 1)]


def test_checks_of_the_small_trace(small: Trace) -> None:
    columns = "events unexplained_changes unexplained_bytes old_frees old_freed_bytes"
    assert rows(small, "memory_checks", columns) == [(10, 1, 3, 1, 300)]


def test_unexplained_bytes_have_a_separate_row() -> None:
    """At the peak of 30 bytes, only the second block at this address is allocated. The free of 10 bytes was not
    recorded, which the repeated address shows."""
    assert rows(trace(ODD), "memory_peak", "name blocks bytes") == [("mm", 1, 20), (UNEXPLAINED, None, 10)]


def test_events_without_addresses_have_levels_but_no_blocks() -> None:
    found = trace([host("mm", "operator", 0, 50), mem(10, 8, None), mem(20, -8, None)])
    assert rows(found, "memory_places", "peak_growth_bytes") == [(8,)]
    for name in ("memory_peak", "memory_leaks"):
        assert rows(found, name, "name") == []
        assert "no addresses" in str(VIEW[name].explain_empty(found))


# -- steps and leaks ---------------------------------------------------------------------------------------------------

STEPS = ("step allocated_bytes alive_blocks alive_bytes alive_next_blocks alive_next_bytes alive_last_blocks "
         "alive_last_bytes end_bytes growth_bytes")  # fmt: skip
LEAKS = "name steps of_steps blocks bytes avg_step_bytes"


def test_what_each_step_leaves(small: Trace) -> None:
    assert rows(small, "memory_steps", STEPS) == [
        (0, 150, 1, 50, 1, 50, 1, 50, 1050, 50),
        (1, 150, 1, 50, 0, 0, 0, 0, 800, -250),
        (2, 50, 1, 50, None, None, 1, 50, 800, 0),
    ]
    assert rows(small, "memory_leaks", LEAKS) == [("relu", 1, 2, 1, 50, 25)]


def train(steps: list[int], leak: int = 0, queue: int = 0) -> Trace:
    """Return steps of 100 ns with these numbers. Each step replaces the gradient (16 bytes) of the previous step and
    keeps ``leak`` more bytes. It also allocates ``queue`` bytes and frees ``queue`` bytes that were allocated before
    the recording."""
    rows, total = [], 500
    for at, number in enumerate(steps):
        begin, address = 100 * at, 1000 * (at + 1)
        rows += [host(f"step {number}", "step", begin, 100, step=number)]
        changes = [("zero_grad", -16, address - 1000), ("backward", 16, address), ("ones", leak, address + 1)]
        changes += [("fetch", queue, address + 2), ("fetch", -queue, 10**6 + at)]
        for index, (name, change, block) in enumerate(changes):
            if change:
                total += change
                start = begin + 10 * index
                rows += [host(name, "operator", start, 8), mem(start + 2, change, block, total)]
    return trace(rows)


def test_a_steady_training_does_not_grow_and_leaves_nothing() -> None:
    found = train([3, 4, 5, 6])
    assert [row[0] for row in rows(found, "memory_steps", "growth_bytes")] == [0, 0, 0, 0]
    assert rows(found, "memory_steps", "alive_bytes alive_next_bytes") == [(16, 0), (16, 0), (16, 0), (16, None)]
    assert rows(found, "memory_leaks", LEAKS) == []
    assert "no leaks: steps freed the memory" in str(VIEW["memory_leaks"].explain_empty(found))


def test_a_leak_stays_from_every_step_that_was_followed() -> None:
    found = train([3, 4, 5, 6], leak=40)
    assert [row[0] for row in rows(found, "memory_steps", "growth_bytes")] == [40, 40, 40, 40]
    assert rows(found, "memory_leaks", LEAKS) == [("ones", 3, 3, 3, 120, 40)]


def test_a_leak_as_large_as_what_training_replaces_is_found_too() -> None:
    found = train([3, 4, 5, 6], leak=16)
    assert rows(found, "memory_leaks", LEAKS) == [("ones", 3, 3, 3, 48, 16)]


def test_a_queue_longer_than_the_recording_is_no_leak() -> None:
    assert rows(train([3, 4, 5, 6], queue=8), "memory_leaks", LEAKS) == []
    assert rows(train([3, 4, 5, 6], queue=8, leak=40), "memory_leaks", LEAKS) == [("ones", 3, 3, 3, 120, 40)]


def test_blocks_are_followed_to_the_end_of_a_run_of_steps_only() -> None:
    """The block of the first cycle's last step is freed between two cycles of a profiler, so its free is not
    recorded."""
    found = train([0, 1, 8, 9], leak=40)
    assert rows(found, "memory_steps", "step alive_next_blocks alive_last_blocks") == [
        (0, 1, 1), (1, None, 2), (8, 1, 1), (9, None, 2),
    ]  # fmt: skip
    assert rows(found, "memory_leaks", LEAKS) == [("ones", 2, 2, 2, 80, 40)]
    assert "two consecutive training steps" in str(VIEW["memory_leaks"].explain_empty(train([4])))


# -- ranks and properties ----------------------------------------------------------------------------------------------


def test_ranks_have_their_own_memory() -> None:
    """Both ranks use the same addresses at the same times."""
    both = concat_traces([trace(ROWS, rank=0), trace(ROWS, rank=1)])
    alone = rows(trace(ROWS), "memory_places", PLACES)[0][1:]
    assert rows(both, "memory_places", PLACES) == [(0, *alone), (1, *alone)]
    assert rows(both, "memory_peak", "rank name bytes", pattern="relu") == [(0, "relu", 50), (1, "relu", 50)]
    assert rows(both, "memory_leaks", "rank name bytes") == [(0, "relu", 50), (1, "relu", 50)]
    assert rows(both, "memory", "allocated_bytes", pattern="relu") == [(300,)]
    assert rows(both, "memory_checks", "rank old_frees") == [(0, 1), (1, 1)]


def test_blocks_equal_a_replay_event_by_event() -> None:
    """Compare the blocks of 2,000 random events with a dictionary of the addresses in use."""
    random = np.random.default_rng(7)
    events = [
        (at, int(random.integers(1, 9)) * (1 if random.random() < 0.5 else -1), int(random.integers(0, 40)))
        for at in range(2000)
    ]
    live: dict[int, int] = {}
    level, best, alive, repeated, old = 0, 0, 0, 0, 0
    for _, change, address in events:
        level += change
        if change > 0:
            repeated += address in live
            live[address] = change
        elif live.pop(address, None) is None:
            old += 1
        if level > best:
            best, alive = level, sum(live.values())
    found = trace([host("mm", "operator", 0, 3000), *(mem(at, change, address) for at, change, address in events)])
    assert rows(found, "memory_checks", "old_frees repeated_allocations") == [(old, repeated)]
    assert rows(found, "memory_peak", "name bytes") == [("mm", alive)]
    assert rows(found, "memory_places", "peak_growth_bytes") == [(best,)]
    assert min(old, repeated, alive) > 10
