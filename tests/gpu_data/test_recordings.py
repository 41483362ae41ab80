"""perfkit's live recordings of a GPU equal the reading of torch's own traces of the same profiles.

torch 2.11 made them, which has no ``trace_activities()``: perfkit read ``events()``. These lack the arguments of device
work, the bytes of copies, the addresses and totals of memory events, the shapes of lists, and Python frames, which
perfkit reads from elsewhere since then. A run keeps the phases of the version that wrote it. The file differs in one
thing: a range on a device begins 1 ns earlier and is 2 ns longer, so that viewers nest it."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest

from perfkit_core.trace.model.trace import Trace
from tests.support.gpu_data import CHECKS, GPU, PROGRAMS, file, live, native
from tests.support.kineto_events import RANGE, read_again

MENDED = {"cuda_driver": "category", "cuda_sync": "kind", RANGE: "correlation", "cpu_instant_event": "tid"}
"""Columns in which these recordings are wrong, because their handler read events of this category wrongly."""
EVERY = ("name", "kind", "category", "start_ns", "dur_ns", "self_ns", "tid", "device", "stream", "correlation", "step",
         "sequence", "module", "dtypes", "op_name")  # fmt: skip


def cells(trace: Trace, exported: bool) -> list[dict[str, Any]]:
    """Return the events, with the names and starts of the events that enclose and launch them, and torch's times."""
    table = trace.events.to_pylist()
    for row in table:
        if exported and row["category"] == RANGE:
            row["start_ns"], row["dur_ns"] = row["start_ns"] + 1, row["dur_ns"] - 2
    names = [(row["name"], row["start_ns"]) for row in table]
    for row in table:
        for column in ("parent", "launched_by"):
            row[column] = names[row[column]] if row[column] >= 0 else None
    return table


def counted(table: list[dict[str, Any]], *more: str) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(row[column] for column in (*EVERY, "parent", "launched_by", *more)) for row in table)


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_run_equals_the_file(name: str) -> None:
    """All cells of all events that the handler of these recordings read correctly, and the others without kind."""
    wrong = {event.name for event in native(name) if event.cat in MENDED}
    mine, theirs = ([row for row in cells(trace, exported) if row["category"] != "python_function"]
                    for trace, exported in ((live(name), False), (file(name), True)))  # fmt: skip
    if name == "stacks":  # calls of layers, which are Python frames, are the forward phase
        for row in (*mine, *theirs):
            row["phase"] = row["module"] = row["parent"] = row["self_ns"] = None
    a, b = (Counter((row["name"], row["start_ns"], row["dur_ns"], row["device"], row["step"]) for row in table)
            for table in (mine, theirs))  # fmt: skip
    assert a == b
    a, b = (counted([row for row in table if row["name"] not in wrong]) for table in (mine, theirs))
    assert a == b
    assert a.total() > len(mine) / 2


@pytest.mark.parametrize("name", [name for name in PROGRAMS if name != "stacks"])
def test_events_of_torch_are_read_as_the_file(name: str) -> None:
    """Every column that ``events()`` has. An operator on a list of tensors has no shapes: torch gives [] for the list,
    as for a scalar."""
    mine, theirs = cells(read_again(name), False), cells(file(name), True)
    for row in theirs:
        if "TensorList" in (row["dtypes"] or ""):
            row["shapes"] = None
    for row in (*mine, *theirs):
        if row["kind"] != "memory":
            row["bytes"] = None  # of collectives, whose sizes are in arguments
        if row["kind"] == "communication":
            row["shapes"] = row["dtypes"] = None
    assert counted(mine, "shapes", "bytes") == counted(theirs, "shapes", "bytes")


def test_provenance() -> None:
    about = json.loads((GPU / "provenance.json").read_text())
    files = [*GPU.rglob("*.gz"), *GPU.rglob("*.parquet")]
    assert max(path.stat().st_size for path in files) < 1_000_000
    assert sum(path.stat().st_size for path in files) < 8_000_000
    for name in PROGRAMS:
        for trace in (live(name), file(name)):
            assert [device.name for device in trace.meta.devices] == [about["device"]]
        assert live(name).meta.framework_version == about["versions"]["torch"]
    assert (CHECKS / "snapshot" / "memory-stats.json").exists()
