"""The memory views over small traces. The expected numbers were computed by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from perfkit_core.errors import UsageError
from perfkit_core.testing.conformance import check_view
from perfkit_core.testing.traces import check_trace
from perfkit_core.trace.model.trace import Trace, concat_traces
from perfkit_core.views.builtin import VIEWS
from tests.support.events import host, trace
from tests.support.tables import check_tables, view_rows, view_table

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


@pytest.fixture(scope="module")
def small() -> Trace:
    return trace(ROWS)


def test_the_trace_itself_is_sound(small: Trace) -> None:
    check_trace(small)


@pytest.mark.parametrize("name", VIEW)
def test_every_view_keeps_the_contract_of_views(small: Trace, name: str) -> None:
    check_view(VIEW[name], small)
    with pytest.raises(UsageError, match="step 7 was not recorded"):
        view_table(name, small, steps=(7,))


@pytest.mark.parametrize("name", VIEW)
def test_without_memory_events_every_view_is_empty_and_says_why(name: str) -> None:
    found = trace([host("step 0", "step", 0, 100, step=0), host("mm", "operator", 10, 20)])
    assert view_table(name, found).empty
    assert "no memory events were recorded" in str(VIEW[name].explain_empty(found))
    for options, cause in (({}, "although"), ({"profile_all_threads": True}, "records none with profile_all_threads")):
        with_memory = found.with_meta(options={"profile_memory": True, **options})
        assert cause in str(VIEW[name].explain_empty(with_memory))


def test_all_memory_views_of_the_small_trace(small: Trace) -> None:
    """Each event counts once, at the innermost operator. The block that is allocated in ``empty`` is alive at the peak
    as a block of the outermost operator around it."""
    requests: list[tuple[str, dict[str, Any]]] = [
        *((name, {}) for name in VIEW),
        *(("memory", {"by": (by,)}) for by in ("phase", "step", "thread")),
        ("memory", {"native": True}),
        ("memory", {"pattern": "^relu$", "steps": (0, 1)}),
        ("memory", {"device": "cuda"}),
        *((name, {"steps": (2,)}) for name in ("memory_places", "memory_curve", "memory_peak")),
        ("memory_peak", {"by": ("shape",), "steps": (1,), "pattern": "linear|relu"}),
        ("memory_peak", {"by": ("step", "phase"), "steps": (1,)}),
    ]
    tables = {
        ", ".join([name, *(f"{key} {value}" for key, value in asked.items())]): view_table(name, small, **asked)
        for name, asked in requests
    }
    check_tables("views/memory.txt", tables)


def test_a_pattern_that_is_no_regular_expression_is_refused(small: Trace) -> None:
    with pytest.raises(UsageError, match="not a regular expression"):
        view_table("memory", small, pattern="(")


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


def test_memory_of_operators_and_layers() -> None:
    details = trace([
        host("add", "operator", 0, 50),
        host("add kernel", "operator_detail", 10, 20),
        mem(15, 8, A),
        host("label", "annotation", 60, 20),
        mem(65, 4, B),
    ])  # fmt: skip
    category = trace([host("mm", "operator", 0, 50, category="cpu_op"), mem(5, 8, A)])
    layer = trace([
        host("net", "forward", 0, 100, module="net.0"), host("mm", "operator", 10, 50), mem(20, 8, A), mem(200, 4, B),
    ])  # fmt: skip
    check_tables("views/memory_of_operators.txt", {
        "the operator owns memory, or else the nearest event": view_table("memory", details),
        "by category": view_table("memory", category, by=("category",)),
        "by module, of the nearest event that knows it": view_table("memory", layer, by=("module",)),
        "operators of Paddle": view_table("memory", trace(NATIVE)),
        "natively, memory of direct children counts twice, and memory two levels below or outside does not count":
            view_table("memory", trace(NATIVE), native=True),
    })  # fmt: skip


# -- levels and blocks -------------------------------------------------------------------------------------------------


def reserve(text: str) -> str:
    return f'{{"place":"Place(gpu:0)","current_reserved":{text},"peak_allocated":99,"peak_reserved":5000}}'


ODD = [
    host("mm", "operator", 0, 100),
    mem(10, 10, A, 10),
    mem(20, 20, A, 30),  # the free of this block was not recorded
    mem(30, -20, A, 10),
    mem(40, -20, A, -10),  # freed twice
    mem(50, 5, B, -5),
    mem(60, -6, B, -11),
]


def test_levels_and_blocks_of_unusual_events() -> None:
    """In the reserve, a chunk of 4,096 bytes is reserved, and its first 64 bytes are allocated. Then both are freed. At
    the peak of 30 bytes of contradictory events, only the second block at this address is allocated."""
    cuda = {"device": "cuda:0"}
    early = trace([host("mm", "operator", 100, 10), mem(105, -30, A, 70), mem(108, 20, B, 90)])
    unknown = trace([host("mm", "operator", 0, 50), mem(10, 30, A), mem(20, -10, B), mem(30, -30, A)])
    reserved = trace([
        host("mm", "operator", 0, 50),
        mem(10, 4096, A, 0, category="ReservedAllocate", args=reserve("4096"), **cuda),
        mem(11, 64, A, 64, category="Allocate", args=reserve("4096"), **cuda),
        mem(20, -64, A, 0, category="Free", args=reserve("4096"), **cuda),
        mem(30, -4096, A, 0, category="ReservedFree", args=reserve("0"), **cuda),
    ])  # fmt: skip
    zero = trace([host("mm", "operator", 0, 50), mem(10, 8, A, 8, args='{"Total Reserved":0}')])
    repeated = trace([*ODD, mem(70, 9, None, 2)])
    anonymous = trace([host("mm", "operator", 0, 50), mem(10, 8, None), mem(20, -8, None)])
    cases = [
        ("the peak may lie before the first event", early, "places peak"),
        ("without totals, growth is known and the level is not", unknown, "curve places"),
        ("the reserve of an allocator is counted apart", reserved, " curve places checks"),
        ("a reserve of 0 in every event was not measured", zero, "curve"),
        ("events that contradict each other are counted", trace(ODD), "checks peak"),
        ("one more has no address", repeated, "checks"),
        ("events without addresses have levels but no blocks", anonymous, "places peak leaks"),
    ]
    check_tables("views/memory_levels.txt", {
        f"{heading}: memory_{name}".removesuffix("_"): view_table(f"memory_{name}".removesuffix("_"), made)
        for heading, made, names in cases for name in names.split(" ")
    })  # fmt: skip
    for name in ("memory_peak", "memory_leaks"):
        assert "no addresses" in str(VIEW[name].explain_empty(anonymous))


@pytest.mark.parametrize("recorded", [True, False])
def test_alive_at_the_peak_by_stack(recorded: bool) -> None:
    """The stack was recorded with the operator, or consists of the frames around the operator."""
    stack = {"stack": "net.py(9): forward"} if recorded else {}
    frame = [] if recorded else [host("net.py(9): forward", "python", 0, 100)]
    found = trace([*frame, host("mm", "operator", 10, 50, **stack), host("empty", "operator", 12, 8), mem(15, 8, A)])
    assert view_rows("memory_peak", found, "name stack bytes", by=("stack",)) == [("mm", "net.py(9): forward", 8)]


# -- steps and leaks ---------------------------------------------------------------------------------------------------


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


def test_what_steps_leave() -> None:
    """Blocks are followed to the end of a run of steps only: the block of the first cycle's last step is freed between
    two cycles of a profiler, so that its free is not recorded."""
    trainings = {
        "a steady training leaves nothing": train([3, 4, 5, 6]),
        "a leak stays from every step that was followed": train([3, 4, 5, 6], leak=40),
        "a leak may be as large as what training replaces": train([3, 4, 5, 6], leak=16),
        "a queue that is longer than the recording is no leak": train([3, 4, 5, 6], queue=8),
        "a queue and a leak": train([3, 4, 5, 6], queue=8, leak=40),
        "two cycles": train([0, 1, 8, 9], leak=40),
    }
    check_tables("views/memory_leaks.txt", {
        f"{heading}: {name}": view_table(name, found)
        for heading, found in trainings.items() for name in ("memory_steps", "memory_leaks")
    })  # fmt: skip
    explain = VIEW["memory_leaks"].explain_empty
    assert "no leaks: steps freed the memory" in str(explain(train([3, 4, 5, 6])))
    assert "two consecutive training steps" in str(explain(train([4])))


# -- ranks and properties ----------------------------------------------------------------------------------------------


def test_ranks_have_their_own_memory(small: Trace) -> None:
    """Both ranks use the same addresses at the same times."""
    both = concat_traces([trace(ROWS, rank=0), trace(ROWS, rank=1)])
    for name in VIEW:
        alone, found = view_table(name, small), view_table(name, both)
        if name == "memory":
            assert found["allocated_bytes"].tolist() == [2 * count for count in alone["allocated_bytes"]]
            continue
        for rank in (0, 1):
            of_rank = found[found["rank"] == rank].reset_index(drop=True)
            columns = [column for column in alone if column != "rank"]
            pd.testing.assert_frame_equal(of_rank[columns], alone[columns], check_dtype=False, obj=name)


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
    assert view_rows("memory_checks", found, "old_frees repeated_allocations") == [(old, repeated)]
    assert view_rows("memory_peak", found, "name bytes") == [("mm", alive)]
    assert view_rows("memory_places", found, "peak_growth_bytes") == [(best,)]
    assert min(old, repeated, alive) > 10
