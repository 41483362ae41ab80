"""Memory views compared with Paddle's Memory Summary as integers and as text, with raw memory events, and with a live
run."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from perfkit_core.plugins.contracts import ViewRequest
from perfkit_core.readers.load import load
from perfkit_core.trace.model.trace import Trace
from perfkit_core.views.memory import memory, memory_blocks, memory_pools
from tests.support.paddle_summary import tables

EVERYTHING, NATIVE = ViewRequest(), ViewRequest(native=True)
MEASURES = {"allocation_count": "allocations", "free_count": "frees", "allocation_size": "allocated_bytes",
            "free_size": "freed_bytes", "increase_size": "increase_bytes"}  # fmt: skip
PRINTED = {"Allocation Count": "allocations", "Free Count": "frees", "Allocation Size": "allocated_bytes",
           "Free Size": "freed_bytes", "Increased Size": "increase_bytes"}  # fmt: skip
NAMES = ("pb", "pb.gz", "json.gz")


@pytest.fixture(scope="session")
def cycles(traces: Path) -> list[tuple[str, Path, Trace]]:
    """Return name, path without suffix, and trace of each recorded cycle, from the protobuf and from the JSON."""
    found = []
    for stats in sorted(traces.glob("paddle/cpu-3.3.1/*/cycle*.stats.json.gz")):
        stem = stats.parent / stats.name.removesuffix(".stats.json.gz")
        for suffix in NAMES:
            path = stem.with_name(f"{stem.name}.{suffix}")
            if path.exists():
                found.append((f"{stats.parent.name}/{path.name}", stem, load(path)))
    assert len(found) >= 22
    return found


def own_integers(stem: Path) -> dict[str, Any]:
    stats: dict[str, Any] = json.loads(gzip.decompress(stem.with_name(f"{stem.name}.stats.json.gz").read_bytes()))
    return stats


def raw(stem: Path, what: str) -> pd.DataFrame:
    return pd.read_csv(stem.with_name(f"{stem.name}.{what}.csv.gz"))


def rows_equal(table: pd.DataFrame, native: dict[str, Any], where: str) -> int:
    """Assert that both tables have the same names and numbers. Return how many numbers were compared."""
    table = table.set_index("name")
    assert sorted(table.index) == sorted(native), where
    for name, numbers in native.items():
        for key, column in MEASURES.items():
            assert table.loc[name, column] == numbers[key], (where, name, key)
    return len(native) * len(MEASURES)


def test_native_rows_equal_paddles_own_integers(cycles: list[tuple[str, Path, Trace]]) -> None:
    """For every workload, the rows Allocated and Reserved equal Paddle's integers. On a CPU, nothing is reserved."""
    count = 0
    for name, stem, trace in cycles:
        stats, table = own_integers(stem), memory.table(trace, NATIVE)
        assert set(stats["memory"]) <= {"Place(cpu)"}
        assert not stats["memory_reserved"]
        assert set(table["type"]) <= {"allocated"}
        count += rows_equal(table, stats["memory"].get("Place(cpu)", {}), name)
    print(f"memory summary: {count} numbers equal")
    assert count > 2000


def test_peaks_equal_paddles_own(cycles: list[tuple[str, Path, Trace]]) -> None:
    count = 0
    for name, stem, trace in cycles:
        stats, table = own_integers(stem), memory_pools.places_table(trace, EVERYTHING)
        for key, column in (("peak_allocated", "process_peak_bytes"), ("peak_reserved", "process_peak_reserved_bytes")):
            assert table[column].tolist() == list(stats[key].values()), (name, key)
            count += len(table)
        assert table["fragmentation_bytes"].isna().all()  # on a CPU, nothing is reserved
    assert count >= 24


def test_native_rows_equal_what_paddle_prints(cycles: list[tuple[str, Path, Trace]]) -> None:
    """Every printed row, of which there are at most 100, and both peaks are equal."""
    count = 0
    for name, stem, trace in cycles:
        text = (stem.with_name(f"{stem.name}.summary") / "view_MemoryView.txt").read_text()
        table = memory.table(trace, NATIVE).set_index("name")
        for printed in tables(text):
            (place,) = memory_pools.places_table(trace, EVERYTHING).to_dict("records")
            assert printed.title == "Memory Summary - Place(cpu)"
            assert printed.facts["Peak Allocated Memory"] == str(place["process_peak_bytes"])
            assert printed.facts["Peak Reserved Memory"] == str(place["process_peak_reserved_bytes"])
            assert len(printed.rows) == len(table), name
            for row in printed.rows:
                mine = {head: str(table.loc[row.name, column]) for head, column in PRINTED.items()}
                assert mine == {head: row.cells[head] for head in PRINTED}, (name, row.name)
                count += len(PRINTED)
    print(f"printed memory summary: {count} numbers equal")
    assert count > 2000


def test_every_event_counts_once_at_its_innermost_operator(cycles: list[tuple[str, Path, Trace]]) -> None:
    """The expected operator is found in Paddle's raw tree, by walking up from the node of each memory event."""
    count = 0
    for name, stem, trace in cycles:
        events = raw(stem, "mem")
        tree = raw(stem, "tree").set_index(["tid", "id"])
        if events.empty:
            continue
        events["owner"] = [owner(tree, tid, node) for tid, node in zip(events["tid"], events["host_id"], strict=True)]
        size = events["increase_bytes"]
        theirs = pd.DataFrame({"name": events["owner"], "allocations": (size > 0) * 1, "frees": (size < 0) * 1,
                               "allocated_bytes": size.clip(lower=0), "freed_bytes": -size.clip(upper=0),
                               "increase_bytes": size}).groupby("name").sum()  # fmt: skip
        mine = memory.table(trace, EVERYTHING).set_index("name")[theirs.columns]
        pd.testing.assert_frame_equal(mine.sort_index(), theirs.sort_index(), check_dtype=False, check_index_type=False,
                                      check_column_type=False, obj=name)  # fmt: skip
        assert memory.table(trace, EVERYTHING)["allocations"].sum() == (size > 0).sum()
        count += theirs.size
    print(f"counted once: {count} numbers equal")
    assert count > 1000


def owner(tree: pd.DataFrame, tid: int, node: int) -> str:
    """Return the name of the innermost operator around a node, or the node's own name if there is no such operator.
    Steps and root nodes have a common name instead."""
    own = tree.loc[(tid, node)]
    at = own
    while at["type"] not in ("Operator", "Communication") and at["parent"] >= 0:
        at = tree.loc[(tid, at["parent"])]
    if at["type"] in ("Operator", "Communication"):
        return str(at["name"])
    if own["type"] == "ProfileStep":
        return "(in a step, outside operators)"
    return "(outside host events)" if own["name"] == "root node" else str(own["name"])


def test_curve_is_the_raw_events(cycles: list[tuple[str, Path, Trace]]) -> None:
    """Time, change, allocated and reserved bytes of every event equal those in the protobuf."""
    count = 0
    for name, stem, trace in cycles:
        events = raw(stem, "mem").sort_values("timestamp_ns", kind="stable")
        if name.endswith("json.gz") or events.empty:
            continue
        table = memory_pools.curve_table(trace, EVERYTHING)
        assert table["allocated_bytes"][0] == events["current_allocated"].iloc[0] - events["increase_bytes"].iloc[0]
        assert table["time_ns"][0] == 0
        table = table[1:]
        start = raw(stem, "tree").query("start_ns > 0")["start_ns"].min()
        assert table["time_ns"].tolist() == (events["timestamp_ns"] - min(start, events["timestamp_ns"].min())).tolist()
        for column, native in (("change_bytes", "increase_bytes"), ("allocated_bytes", "current_allocated"),
                               ("reserved_bytes", "current_reserved")):  # fmt: skip
            assert table[column].tolist() == events[native].tolist(), (name, column)
        count += 4 * len(events)
    print(f"curve: {count} numbers equal")
    assert count > 30_000


def test_blocks_at_the_peak_equal_those_of_a_replay(cycles: list[tuple[str, Path, Trace]]) -> None:
    """The raw events are replayed in order, to get the blocks and their owners when the recorded total was highest."""
    for name, stem, trace in cycles:
        events = raw(stem, "mem").sort_values("timestamp_ns", kind="stable")
        if name.endswith("json.gz") or events.empty:
            continue
        live, best, level, old = {}, -1, 0, 0
        before = int(events["current_allocated"].iloc[0] - events["increase_bytes"].iloc[0])
        best, alive, older = before, (0, 0), before
        for event in events.itertuples():
            if event.increase_bytes > 0:
                live[event.addr] = event.increase_bytes
            elif live.pop(event.addr, None) is None:
                old += event.increase_bytes
            level = event.current_allocated
            if level > best:
                best, alive, older = level, (len(live), sum(live.values())), before + old
        table = memory_blocks.peak_table(trace, EVERYTHING).set_index("name")
        known = table[table["blocks"].notna()]
        assert (known["blocks"].sum(), known["bytes"].sum()) == alive, name
        assert table["bytes"].get("(allocated before the recording)", 0) == older, name
        assert table["bytes"].sum() == best == memory_pools.places_table(trace, EVERYTHING)["peak_bytes"][0], name
        assert table["ratio"].sum() == pytest.approx(1)


def test_interleaved_threads_are_not_lost_events(cycles: list[tuple[str, Path, Trace]]) -> None:
    """In one workload, the totals of two threads interleave. So the total changes without an event, and these changes
    sum to 0."""
    moved = {}
    for name, _, trace in cycles:
        for row in memory_pools.checks_table(trace, EVERYTHING).to_dict("records"):
            moved[name] = (row["unexplained_changes"], row["unexplained_bytes"])
            assert row["repeated_allocations"] == row["resized_frees"] == row["without_address"] == 0
    assert moved["to_static/cycle0.pb"] == (4, 0)
    assert moved["mlp_medium_mem/cycle0.pb.gz"] == (0, 0)


# -- live run -----------------------------------------------------------------------------------


@pytest.fixture(params=[(1, 4), None], ids=["scheduler", "no-scheduler"])
def live(request: pytest.FixtureRequest, paddle: Any, tmp_path: Path) -> Iterator[tuple[Trace, Any]]:
    """Record a convolutional network. Return the trace, and the objects from which Paddle prints its memory summary."""
    from paddle.profiler.profiler_statistic import StatisticData

    from perfkit_paddle import trace_handler

    found: list[Any] = []

    def keep(profiler: Any) -> None:
        result = profiler.profiler_result
        found.append(StatisticData(result.get_data(), result.get_extra_info()))
        found.append(result)  # keeps the memory of the event types alive

    net = paddle.nn.Sequential(paddle.nn.Conv2D(1, 4, 3), paddle.nn.ReLU(), paddle.nn.Flatten(),
                               paddle.nn.Linear(144, 4))  # fmt: skip
    optimizer = paddle.optimizer.Adam(parameters=net.parameters())
    handler = trace_handler(tmp_path, also=[keep])
    held = []
    with paddle.profiler.Profiler(scheduler=request.param, on_trace_ready=handler, profile_memory=True) as profiler:
        for _ in range(4):
            held.append(paddle.ones([10]))
            net(paddle.randn([2, 1, 8, 8])).square().sum().backward()
            optimizer.step()
            optimizer.clear_grad()
            profiler.step()
        held.clear()
    yield load(tmp_path), found[0]
    found.clear()


def test_a_live_run_equals_paddles_summary(live: tuple[Trace, Any]) -> None:
    trace, statistic = live
    summary = statistic.memory_summary
    ((place, items),) = summary.allocated_items.items()
    native = {name: vars(item) for name, item in items.items()}
    count = rows_equal(memory.table(trace, NATIVE), native, "live")
    (row,) = memory_pools.places_table(trace, EVERYTHING).to_dict("records")
    assert row["process_peak_bytes"] == summary.peak_allocation_values[place]
    assert row["process_peak_reserved_bytes"] == summary.peak_reserved_values[place]
    print(f"live memory summary: {count} numbers equal")
    assert count > 100
    once = memory.table(trace, EVERYTHING)
    changes = trace.ints("bytes", 0)[trace.rows("kind", "memory")]
    assert once["allocated_bytes"].sum() == changes[changes > 0].sum()
    # Paddle 3 counts some allocations in two rows. Paddle 2.6 omits allocations in operator details.
    assert once["allocated_bytes"].sum() != sum(item["allocation_size"] for item in native.values())
