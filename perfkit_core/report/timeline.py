"""Steps as a timeline: which boxes a page draws, in which rows, and what led to what. No number is rounded."""

from __future__ import annotations

from typing import Final

import numpy as np
import pandas as pd

from perfkit_core.algorithms import nesting
from perfkit_core.algorithms.arrays import NO_ROW, BoolArray, IntArray
from perfkit_core.exporters.lanes import instants, lanes
from perfkit_core.language.messages import mark, say
from perfkit_core.model.columns import count, duration, key
from perfkit_core.model.trace import Trace
from perfkit_core.report.model import Part, Row, Section, Timeline
from perfkit_core.views.steps.step_rows import step_rows

MOST_BOXES: Final = 100_000
"""Events that a page holds."""
MOST_ROWS: Final = 5000
"""Rows of the table that tells what is in each row of the picture."""

_COLUMNS: Final = (
    key("group", "Group"),
    key("row", "Row"),
    count("events", "Events"),
    duration("covered_ns", "Covered", description="with something in it"),
)


def section(trace: Trace, most: int = MOST_BOXES) -> Section:
    """The timeline of the steps, with a table of its rows: group, row, events, covered_ns (with something in it)."""
    found, left_out = timeline(trace, most)
    table = _told(found)
    note = say("Threads and streams of a step, to zoom and move about in. The table tells what is in each row.")
    if left_out:
        more = mark("{count} of the recording's events are not in the page: perfkit export -o trace.json.gz has all.")
        note = f"{note} {say(more, count=left_out)}"
    if len(table) > MOST_ROWS:
        note = f"{note} {say('The table has the first {most} of {count} rows.', most=MOST_ROWS, count=len(table))}"
    empty = say("no events with a duration were recorded")
    return Section(
        "timeline", say("Timeline"), table.head(MOST_ROWS), note, empty, 20, timeline=found, columns=_COLUMNS
    )


def timeline(trace: Trace, most: int = MOST_BOXES) -> tuple[Timeline, int]:
    """Whole steps, the one of median duration first, then the longest, then in their order, as far as ``most`` events
    allow (at least one, of which then the longest events are kept); and how many events of the recording are missing.
    """
    boxes = np.flatnonzero(~instants(trace))
    parts, chosen = _chosen(trace, boxes, most)
    kept = boxes[chosen[boxes]]
    if len(kept) > most:
        kept = np.sort(kept[np.argsort(-trace.ints("dur_ns")[kept], kind="stable")[:most]])
    return _timeline(trace, kept, parts), len(boxes) - len(kept)


def _chosen(trace: Trace, boxes: IntArray, most: int) -> tuple[list[Part], BoolArray]:
    """The parts, the most telling first, and the events that overlap one of them."""
    start, end = trace.ints("start_ns"), trace.end_ns
    chosen = np.zeros(len(trace), np.bool_)
    parts: list[Part] = []
    for part in _candidates(trace, boxes):
        inside = np.zeros(len(trace), np.bool_)
        inside[boxes] = (start[boxes] < part.end_ns) & (end[boxes] > part.start_ns)
        if parts and int((chosen | inside).sum()) > most:
            continue
        chosen |= inside
        parts.append(part)
    return parts, chosen


def _candidates(trace: Trace, boxes: IntArray) -> list[Part]:
    """The steps of the first rank, the most telling first; the whole recording where there are none."""
    every = step_rows(trace)
    start, end, dur = trace.ints("start_ns"), trace.end_ns, trace.ints("dur_ns")
    steps = every[trace.ints("rank")[every] == trace.ints("rank")[every].min(initial=2**31)]
    if not len(steps):
        return [Part(say("the recording"), int(start[boxes].min()), int(end[boxes].max()))] if len(boxes) else []
    by_length = steps[np.argsort(dur[steps], kind="stable")]
    order = dict.fromkeys([by_length[(len(steps) - 1) // 2], by_length[-1], *steps])
    return [_step(trace, int(row), every) for row in order]


def _step(trace: Trace, row: int, every: IntArray) -> Part:
    """A step from its first beginning to its last end on all ranks whose step of this number overlaps it."""
    start, end, number = trace.ints("start_ns"), trace.end_ns, trace.ints("step")
    same = every[(number[every] == number[row]) & (start[every] <= end[row]) & (end[every] >= start[row])]
    return Part(say("step {number}", number=number[row]), int(start[same].min()), int(end[same].max()))


def _timeline(trace: Trace, kept: IntArray, parts: list[Part]) -> Timeline:
    found = lanes(trace, apart=False)
    start, end = trace.ints("start_ns")[kept], trace.end_ns[kept]
    order = np.lexsort((-end, start, found.lane[kept]))
    kept, start, end = kept[order], start[order], end[order]
    used, row = np.unique(found.lane[kept], return_inverse=True)
    above = nesting.nest(row, start, end)
    depth = nesting.sum_down(above, (above != NO_ROW).astype(np.int64))
    order = np.lexsort((start, depth, row))
    kept, start, row, depth = kept[order], start[order], row[order], depth[order]
    place = np.full(len(trace) + 1, NO_ROW, np.int64)
    place[kept] = np.arange(len(kept))
    names, name = np.unique(trace.codes("name").codes[kept], return_inverse=True)
    kinds, kind = np.unique(trace.codes("kind").codes[kept], return_inverse=True)
    in_time = sorted(parts, key=lambda part: part.start_ns)
    origin = in_time[0].start_ns if in_time else 0
    return Timeline(
        tuple(Part(part.name, part.start_ns - origin, part.end_ns - origin) for part in in_time),
        tuple(Row(found.lanes[lane].process_name, found.lanes[lane].name) for lane in used.tolist()),
        tuple(trace.codes("name").values[code] for code in names.tolist()),
        tuple(trace.codes("kind").values[code] for code in kinds.tolist()),
        start - origin,
        trace.ints("dur_ns")[kept],
        name.astype(np.int64),
        kind.astype(np.int64),
        row.astype(np.int64),
        depth,
        place[trace.ints("launched_by")[kept]],
        in_time.index(parts[0]) if parts else 0,
    )


def _told(found: Timeline) -> pd.DataFrame:
    outermost = found.depth == 0
    covered = np.zeros(len(found.rows), np.int64)
    np.add.at(covered, found.row[outermost], found.dur_ns[outermost])
    return pd.DataFrame(
        {
            "group": [row.group for row in found.rows],
            "row": [row.name for row in found.rows],
            "events": np.bincount(found.row, minlength=len(found.rows)),
            "covered_ns": covered,
        }
    )
