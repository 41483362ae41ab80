"""Memory views compared with the raw memory events of Paddle's recordings. test_parity compares Paddle's summary."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from perfkit_core.plugins.contracts import ViewRequest
from perfkit_core.readers.load import load
from perfkit_core.trace.model.trace import Trace
from perfkit_core.views.memory import memory, memory_blocks, memory_pools

EVERYTHING = ViewRequest()
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


def raw(stem: Path, what: str) -> pd.DataFrame:
    return pd.read_csv(stem.with_name(f"{stem.name}.{what}.csv.gz"))


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
    sum to 0. On a CPU, nothing is reserved."""
    moved = {}
    for name, _, trace in cycles:
        assert memory_pools.places_table(trace, EVERYTHING)["fragmentation_bytes"].isna().all()
        for row in memory_pools.checks_table(trace, EVERYTHING).to_dict("records"):
            moved[name] = (row["unexplained_changes"], row["unexplained_bytes"])
            assert row["repeated_allocations"] == row["resized_frees"] == row["without_address"] == 0
    assert moved["to_static/cycle0.pb"] == (4, 0)
    assert moved["mlp_medium_mem/cycle0.pb.gz"] == (0, 0)
