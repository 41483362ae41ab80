"""The timeline of a page: the events of steps as boxes in rows of threads and streams."""

from __future__ import annotations

import itertools
from typing import Final

import numpy as np
import pandas as pd

from perfkit_core.base.algorithms import arrays, nesting
from perfkit_core.base.language.messages import plural, render, say
from perfkit_core.exporters.lanes import instants, lanes
from perfkit_core.trace.model.columns import count, duration, key
from perfkit_core.trace.model.report_data import Marks, Part, Row, Section, Timeline
from perfkit_core.trace.model.trace import Trace
from perfkit_core.views.steps.step_rows import step_rows

MOST_BOXES: Final = 100_000
"""Maximum number of events in the timeline of a page."""
NO_MARKS: Final[Marks] = {}
MOST_ROWS: Final = 5000
"""Maximum number of rows in the table of the timeline."""
_TIMELINE_COLUMNS: Final = (
    key("group", "Group"),
    key("row", "Row"),
    count("events", "Events"),
    duration("covered_ns", "Covered", "time during which at least one event runs"),
)


def timeline_section(trace: Trace, most: int = MOST_BOXES, marks: Marks = NO_MARKS) -> Section:
    """Return the section with the timeline of the steps and a table of the timeline's rows. ``marks`` has the events of
    the things that the timeline can highlight, in addition to operators and kernels, which it finds by their names."""
    drawn, left_out = timeline(trace, most, marks)
    outermost = drawn.depth == 0
    covered = np.zeros(len(drawn.rows), np.int64)
    np.add.at(covered, drawn.row[outermost], drawn.dur_ns[outermost])
    table = pd.DataFrame(
        {
            "group": [row.group for row in drawn.rows],
            "row": [row.name for row in drawn.rows],
            "events": np.bincount(drawn.row, minlength=len(drawn.rows)),
            "covered_ns": covered,
        }
    )
    note = say("Each row of the timeline is a thread or stream. The table summarises the rows.")
    if left_out:
        more = plural(
            "The page omits {n} event. perfkit export -o trace.json.gz exports all events.",
            "The page omits {n} events. perfkit export -o trace.json.gz exports all events.",
            left_out,
        )
        note = f"{note} {render(more)}"
    if len(table) > MOST_ROWS:
        first = say("The table shows the first {most} of {count} rows.", most=MOST_ROWS, count=len(table))
        note = f"{note} {first}"
    empty, table = say("no events with a duration were recorded"), table.head(MOST_ROWS)
    return Section("timeline", say("Timeline"), table, note, empty, 20, timeline=drawn, columns=_TIMELINE_COLUMNS)


def timeline(trace: Trace, most: int = MOST_BOXES, marks: Marks = NO_MARKS) -> tuple[Timeline, int]:
    """Return a timeline of at most ``most`` events, and the number of events that it leaves out.

    - Steps are chosen in this order: the step of median duration, the longest step, then all others.
    - A step that would exceed the limit is left out. If the first step alone exceeds it, its longest events are kept.
    - If no steps were recorded, the timeline covers the entire recording.
    - A step of several ranks lasts from the first start to the last end of the overlapping steps with the same number.
    """
    boxes = np.flatnonzero(~instants(trace))
    start, end = trace.ints("start_ns")[boxes], trace.end_ns[boxes]
    numbers, starts, ends = _steps(trace)
    if not numbers and len(boxes):
        starts, ends = start.min(keepdims=True), end.max(keepdims=True)
    unshared, bounds, shared = _by_interval(start, end, starts, ends)
    chosen = np.zeros(len(boxes), np.bool_)
    parts: list[Part] = []
    free = most
    for at, (first, last) in enumerate(itertools.pairwise(bounds.tolist())):
        if parts and last - first > free:
            continue
        inside = shared[(start[shared] < ends[at]) & (end[shared] > starts[at])]
        new = np.concatenate((unshared[first:last], inside[~chosen[inside]]))
        if not parts or len(new) <= free:
            chosen[new] = True
            free -= len(new)
            number = numbers[at] if numbers else ""
            name = say("step {number}", number=number) if numbers else say("the recording")
            parts.append(Part(name, int(starts[at]), int(ends[at]), number))
    drawn = boxes[chosen]
    if len(drawn) > most:
        drawn = np.sort(drawn[np.argsort(-trace.ints("dur_ns")[drawn], kind="stable")[:most]])
    return _drawn(trace, drawn, parts, marks), len(boxes) - len(drawn)


def _steps(trace: Trace) -> tuple[list[str], arrays.IntArray, arrays.IntArray]:
    """Return the numbers, starts and ends of the steps, in the order in which they are chosen."""
    every = step_rows(trace)
    rank, number, start, end = trace.ints("rank"), trace.ints("step"), trace.ints("start_ns"), trace.end_ns
    steps = every[rank[every] == rank[every].min(initial=2**31)]
    if len(steps):
        by_length = steps[np.argsort(trace.ints("dur_ns")[steps], kind="stable")]
        steps = np.array(list(dict.fromkeys([by_length[(len(steps) - 1) // 2], by_length[-1], *steps])))
    starts, ends = start[steps], end[steps]
    every = every[np.argsort(number[every], kind="stable")]
    first, last = (np.searchsorted(number[every], number[steps], side) for side in ("left", "right"))
    for at in np.flatnonzero(last - first > 1).tolist():
        same = every[first[at] : last[at]]
        same = same[(start[same] <= ends[at]) & (end[same] >= starts[at])]
        starts[at], ends[at] = start[same].min(), end[same].max()
    return [str(step) for step in number[steps].tolist()], starts, ends


def _by_interval(
    start: arrays.IntArray, end: arrays.IntArray, starts: arrays.IntArray, ends: arrays.IntArray
) -> tuple[arrays.IntArray, arrays.IntArray, arrays.IntArray]:
    """Assign events to the intervals in which they lie. Interval i contains the events
    ``unshared[bounds[i] : bounds[i + 1]]``, which lie in no other interval, and perhaps some of the events ``shared``.
    Return (unshared, bounds, shared)."""
    in_time = np.argsort(starts, kind="stable")
    first = np.searchsorted(np.maximum.accumulate(ends[in_time]), start, "right")  # earlier intervals end before it
    last = np.searchsorted(starts[in_time], end, "left")  # these and later intervals start after it
    shared, unshared = np.flatnonzero(last - first > 1), np.flatnonzero(last - first == 1)
    interval = in_time[first[unshared]]
    inside = (start[unshared] < ends[interval]) & (end[unshared] > starts[interval])
    unshared, interval = unshared[inside], interval[inside]
    order = np.argsort(interval, kind="stable")
    return unshared[order], np.searchsorted(interval[order], np.arange(len(starts) + 1)), shared


def _drawn(trace: Trace, boxes: arrays.IntArray, parts: list[Part], marks: Marks) -> Timeline:
    in_lanes = lanes(trace, split_python=False)
    start, end = trace.ints("start_ns")[boxes], trace.end_ns[boxes]
    order = np.lexsort((-end, start, in_lanes.lane[boxes]))
    boxes, start, end = boxes[order], start[order], end[order]
    used, row = np.unique(in_lanes.lane[boxes], return_inverse=True)
    above = nesting.nest(row, start, end)
    depth = nesting.sum_down(above, (above != arrays.NO_ROW).astype(np.int64))
    order = np.lexsort((start, depth, row))
    boxes, start, row, depth = boxes[order], start[order], row[order], depth[order]
    # An event without a launch has ``launched_by`` -1. This selects the additional last element, which stays NO_ROW.
    box = np.full(len(trace) + 1, arrays.NO_ROW, np.int64)
    box[boxes] = np.arange(len(boxes))
    names, name = np.unique(trace.codes("name").codes[boxes], return_inverse=True)
    kinds, kind = np.unique(trace.codes("kind").codes[boxes], return_inverse=True)
    in_time = sorted(parts, key=lambda part: part.start_ns)
    origin = in_time[0].start_ns if in_time else 0
    return Timeline(
        parts=tuple(part._replace(start_ns=part.start_ns - origin, end_ns=part.end_ns - origin) for part in in_time),
        rows=tuple(Row(in_lanes.lanes[lane].process_name, in_lanes.lanes[lane].name) for lane in used.tolist()),
        names=tuple(trace.codes("name").values[code] for code in names.tolist()),
        kinds=tuple(trace.codes("kind").values[code] for code in kinds.tolist()),
        start_ns=start - origin,
        dur_ns=trace.ints("dur_ns")[boxes],
        name=name.astype(np.int64),
        kind=kind.astype(np.int64),
        row=row.astype(np.int64),
        depth=depth,
        cause=box[trace.ints("launched_by")[boxes]],
        first=in_time.index(parts[0]) if parts else 0,
        marks={
            kind: {label: drawn for label, rows in rows_of.items() if len(drawn := np.sort(box[rows][box[rows] >= 0]))}
            for kind, rows_of in marks.items()
        },
    )
