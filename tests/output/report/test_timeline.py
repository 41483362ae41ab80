"""The boxes, rows and launches of a timeline, compared with values worked out by hand."""

from __future__ import annotations

import base64
import zlib
from pathlib import Path

import numpy as np
import pytest

import perfkit_core
from perfkit_core.output.renderers.html.packing import timeline as payload
from perfkit_core.output.report import timeline
from perfkit_core.trace.model.report_data import Row, Timeline
from perfkit_core.trace.model.trace import Trace, concat_traces
from tests.support.events import device, host, trace


def steps(count: int, inside: int = 2) -> Trace:
    """Return steps of 100 ns, except the second step of 200 ns. Each step has ``inside`` operators of 10 ns, and memory
    events, which are not boxes."""
    events, at = [], 0
    for number in range(count):
        dur = 200 if number == 1 else 100
        events.append(host(f"Step#{number}", "step", at, dur, step=number))
        events += [host("op", "operator", at + 20 * i, 10) for i in range(inside)]
        events.append(host("[memory]", "memory", at + 5, 0))
        at += dur + 50
    return trace(events)


def test_rows_depths_and_causes() -> None:
    found, left_out = timeline.timeline(
        trace(
            [
                host("Step#0", "step", 1000, 100, step=0),
                host("op", "operator", 1010, 50),
                host("launch", "runtime", 1020, 10, correlation=7),
                device("work", "kernel", 1040, 30, correlation=7),
            ]
        )
    )
    assert left_out == 0
    assert [part.name for part in found.parts] == ["step 0"]
    assert [(part.start_ns, part.end_ns) for part in found.parts] == [(0, 100)]
    boxes = {found.names[name]: i for i, name in enumerate(found.name.tolist())}
    assert [found.depth[boxes[name]] for name in ("Step#0", "op", "launch", "work")] == [0, 1, 2, 0]
    assert [found.start_ns[boxes[name]] for name in ("Step#0", "op", "launch", "work")] == [0, 10, 20, 40]
    assert found.cause.tolist().count(-1) == 3
    assert found.cause[boxes["work"]] == boxes["launch"]
    assert found.row[boxes["work"]] != found.row[boxes["op"]]


def test_points_in_time_are_no_boxes() -> None:
    found, left_out = timeline.timeline(steps(3))
    assert (len(found), left_out) == (9, 0)


def test_whole_steps_are_chosen_the_median_and_the_longest_first() -> None:
    found, left_out = timeline.timeline(steps(5), most=7)
    assert [part.name for part in found.parts] == ["step 1", "step 3"]
    assert found.parts[found.first].name == "step 3", "the median is shown first"
    assert (len(found), left_out) == (6, 9)


def test_of_a_step_that_is_too_large_the_longest_events_stay() -> None:
    found, left_out = timeline.timeline(steps(1, inside=5), most=3)
    assert (len(found), left_out) == (3, 3)
    assert "Step#0" in found.names


def test_without_steps_the_recording_is_the_part() -> None:
    found, _ = timeline.timeline(trace([host("op", "operator", 5, 10), host("op", "operator", 25, 10)]))
    assert [(part.name, part.start_ns, part.end_ns) for part in found.parts] == [("the recording", 0, 30)]


def test_without_events_nothing_is_drawn() -> None:
    section = timeline.timeline_section(steps(1).slice(0, 0))
    assert section.table.empty
    assert section.empty


@pytest.mark.parametrize("file", ["torch/h100-vit.json.gz", "paddle/cpu-3.3.1/cnn_small/cycle0.json.gz"])
def test_boxes_of_a_row_and_depth_never_overlap(traces: Path, file: str) -> None:
    """The script of the page relies on this property for its binary search."""
    found, _ = timeline.timeline(perfkit_core.load(traces / file))
    same = (np.diff(found.row) == 0) & (np.diff(found.depth) == 0)
    end = found.start_ns + found.dur_ns
    assert len(found) > 200
    assert (found.start_ns[1:][same] >= end[:-1][same]).all()


def test_a_page_carries_every_number() -> None:
    found, _ = timeline.timeline(steps(3))
    data = payload(found)
    raw = zlib.decompress(base64.b64decode(data["data"]))
    assert data["columns"][0] == ["start_ns", "f8"]
    assert np.frombuffer(raw, "<f8", data["count"]).tolist() == found.start_ns.tolist()


def test_a_page_carries_more_rows_than_two_bytes_count() -> None:
    count = 70_000
    numbers, none = np.arange(count, dtype=np.int64), np.zeros(count, np.int64)
    rows = tuple(Row("device", f"stream {number}") for number in range(count))
    data = payload(Timeline((), rows, ("k",), ("kernel",), numbers, none + 1, none, none, numbers, none, none - 1))
    raw = zlib.decompress(base64.b64decode(data["data"]))
    widths = {"f8": 8, "i4": 4, "u2": 2}
    begin = count * sum(
        widths[kind] for _, kind in data["columns"][: [name for name, _ in data["columns"]].index("row")]
    )
    assert np.array_equal(np.frombuffer(raw, "<i4", count, begin), numbers)


def test_the_table_of_very_many_rows_is_cut_and_says_so() -> None:
    found = timeline.timeline_section(
        trace([device("k", "kernel", i, 1, stream=i) for i in range(timeline.MOST_ROWS + 1)])
    )
    assert found.timeline is not None
    assert (len(found.table), len(found.timeline.rows)) == (5000, 5001)
    assert "The table shows the first 5000 of 5001 rows." in found.note


def test_a_step_of_several_ranks_spans_all_of_them() -> None:
    """Rank 1 begins 40 ns earlier and ends 60 ns later. Its step 1 is at a different time."""
    one = trace([host("Step#0", "step", 100, 100, step=0), host("op", "operator", 110, 10)], rank=0)
    events = [
        host("Step#0", "step", 60, 200, step=0), host("early", "operator", 65, 10),
        host("Step#1", "step", 400, 50, step=1),
    ]  # fmt: skip
    found, left_out = timeline.timeline(concat_traces([one, trace(events, rank=1)]))
    assert [(part.name, part.end_ns - part.start_ns) for part in found.parts] == [("step 0", 200)]
    assert "early" in found.names
    assert left_out == 1


@pytest.mark.parametrize("seed", range(40))
def test_the_chosen_steps_are_those_of_the_rule_in_plain_python(seed: int) -> None:
    """Steps and operators overlap in any way. Some operators have no duration, some steps have the same number."""
    random = np.random.default_rng(seed)
    durations, most = random.integers(0, 40, 25) * random.integers(0, 2, 25), int(random.integers(1, 30))
    starts = random.integers(0, 200, 25)
    events = [
        host("Step", "step", int(start), int(dur) or 1, step=int(random.integers(0, 9)))
        if number < 8
        else host("op", "operator", int(start), int(dur), tid=number)
        for number, (start, dur) in enumerate(zip(starts, durations, strict=True))
    ]
    recorded = trace(events)
    rows = list(zip(*(recorded.ints(name).tolist() for name in ("start_ns", "dur_ns", "step")), strict=True))
    boxes = [(start, start + dur) for start, dur, _ in rows]
    steps = [(*boxes[row], rows[row][2]) for row in np.flatnonzero(recorded.rows("kind", "step")).tolist()]
    by_length = sorted(steps, key=lambda step: step[1] - step[0])
    chosen: set[int] = set()
    parts = []
    for start, end, number in dict.fromkeys([by_length[(len(steps) - 1) // 2], by_length[-1], *steps]):
        same = [other for other in steps if other[2] == number and other[0] <= end and other[1] >= start]
        first, last = min(step[0] for step in same), max(step[1] for step in same)
        inside = {row for row, (begin, stop) in enumerate(boxes) if begin < last and stop > first}
        if not parts or len(chosen | inside) <= most:
            chosen |= inside
            parts.append((first, last, str(number)))
    found, left_out = timeline.timeline(recorded, most)
    origin = min(part[0] for part in parts)
    assert sorted((part.start_ns + origin, part.end_ns + origin, part.step) for part in found.parts) == sorted(parts)
    assert (len(found), left_out) == (min(len(chosen), most), len(boxes) - min(len(chosen), most))
