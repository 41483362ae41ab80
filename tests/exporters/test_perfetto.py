"""Perfetto's own trace processor accepts exported timelines, and drops no slice of them. Since version 57, it drops
overlapping slices of no file; the tests use version 52."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from perfkit_core import export, load
from perfkit_core.trace.model.trace import Trace, concat_traces, with_rank
from tests.support import chrome_check
from tests.support.trace_processor import query

DROPPED = {
    "torch/mi300x-ddp-resnet18-train.json.gz": 10,
    "torch/mtia-inference.json.gz": 14,
    "torch/v100-ns-resolution.json.gz": 774,
    "paddle/gpu-synthetic/gpu1_by_gpu2.6.2.json.gz": 149,
}
"""Recordings, and the number of slices that Perfetto 52 drops when it opens what the framework's profiler wrote."""
LOST = "select sum(value) from stats where name like 'slice_drop%'"
PROBLEMS = "select name, value from stats where value > 0 and severity in ('error', 'data_loss')"
COUNTS = ("select count(*), sum(dur) from slice", "select count(*) from flow", "select count(*) from counter")
PROCESSES = "select name from process where name is not null order by name"


def assert_accepted(file: Path) -> None:
    """Compare what Perfetto has of a file with what the file has: slices, durations in ns, arrows, and counters."""
    events = chrome_check.events(file)
    kinds = Counter(event["ph"] for event in events)
    durations = sum(round(event["dur"] * 1000) for event in events if event["ph"] == "X")
    names = sorted(event["args"]["name"] for event in events if event["name"] == "process_name")
    problems, [slices], [[arrows]], [[counters]], processes = query(file, PROBLEMS, *COUNTS, PROCESSES)
    assert problems == []
    assert list(map(int, slices)) == [kinds["X"] + kinds["i"], durations]
    assert (int(arrows), int(counters)) == (kinds["s"], kinds["C"])
    assert [name for [name] in processes] == names


@pytest.mark.parametrize("name", DROPPED)
def test_perfetto_drops_no_slice_of_an_export(name: str, traces: Path, tmp_path: Path) -> None:
    export(load(traces / name), tmp_path / "t.json.gz")
    assert_accepted(tmp_path / "t.json.gz")
    [[lost]] = query(traces / name, LOST)[0]
    assert int(lost) == DROPPED[name]


def test_perfetto_accepts_a_timeline_of_several_ranks(traces: Path, tmp_path: Path) -> None:
    """One rank with memory, so that there are counters, and one with launches, so that there are arrows."""

    def rank(name: str, number: int) -> Trace:
        return with_rank(load(traces / "torch" / name), number)

    export(concat_traces([rank("h100-vit.json.gz", 0), rank("mi300x-vit.json.gz", 1)]), tmp_path / "t.json.gz")
    assert_accepted(tmp_path / "t.json.gz")
    kinds = Counter(event["ph"] for event in chrome_check.events(tmp_path / "t.json.gz"))
    assert kinds["C"] > 100
    assert kinds["s"] > 100


def test_perfetto_accepts_the_timeline_of_eight_ranks(traces: Path, tmp_path: Path) -> None:
    export(load(traces / "torch" / "dlrm-8xv100"), tmp_path / "t.json")
    assert_accepted(tmp_path / "t.json")
    (processes,) = query(tmp_path / "t.json", PROCESSES)
    assert len(processes) == 16  # a host process and a device of each rank
