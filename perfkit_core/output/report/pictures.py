"""Sections of a page with a chart: memory over time, and the heat map of ranks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

import numpy as np
import pandas as pd

from perfkit_core.base.language.messages import Text, english, mark, message, render, say, worded
from perfkit_core.output.report.headline import stragglers
from perfkit_core.plugins.contracts import ViewRequest
from perfkit_core.trace.model.columns import by_name, position, size
from perfkit_core.trace.model.report_data import Chart, Section
from perfkit_core.trace.model.trace import Trace
from perfkit_core.views.memory import events as memory
from perfkit_core.views.memory import memory_categories, memory_pools
from perfkit_core.views.select import since_first_event
from perfkit_core.views.steps import partition
from perfkit_core.views.tables import rounded_division

_TIME: Final = position("time_ns", "Time")
STRETCHES: Final = 400
"""Number of time intervals in the curve of memory over time."""


def memory_section(trace: Trace) -> Section:
    """Return the section with the curve of memory over time. Each row of its table is a time interval.

    - ``time_ns``: end of the interval, in ns since the first memory event
    - one column per device and rank: highest number of allocated bytes in the interval, so that no peak is lost. If
      allocated bytes were not recorded, the column has the growth since the first memory event instead.
    """
    table = memory_pools.curve_table(trace, ViewRequest())
    last = int(table["time_ns"].max()) if len(table) else 0
    ends = np.linspace(0, last, STRETCHES + 1)[1:].round().astype(np.int64)
    several = table["rank"].nunique() > 1
    levels, columns = {"time_ns": ends}, [_TIME]
    for (rank, device), events in table.groupby(["rank", "device"], sort=False, dropna=False, observed=True):
        if events["growth_bytes"].isna().any():  # there is no history, only the level at the end
            continue
        title: Text = message("rank {rank} {device}", rank=rank, device=device) if several else str(device)
        recorded = events["allocated_bytes"].notna().all()
        title = title if recorded else message("{name} growth", name=title)
        name = f"{english(title)}_bytes"
        level = events["allocated_bytes" if recorded else "growth_bytes"].to_numpy(np.int64)
        time = events["time_ns"].to_numpy(np.int64)
        # At the start of an interval, the memory level is that of the last event before it.
        begins = np.append(0, ends[:-1])
        highest = level[np.maximum(np.searchsorted(time, begins, side="right") - 1, 0)]
        np.maximum.at(highest, np.minimum(np.searchsorted(ends, time), STRETCHES - 1), level)
        levels[name] = highest
        columns.append(size(name, render(title), quantity="level", heading="proper"))
    curve = pd.DataFrame(levels) if levels.keys() - {"time_ns"} else pd.DataFrame(columns=["time_ns"])
    note = say(
        "The highest level in each of {count} time intervals. perfkit summary --view memory_curve lists every event.",
        count=STRETCHES,
    )
    chart = Chart("line", "time_ns", tuple(curve.columns[1:]))
    title = say("Memory over time")
    empty = memory.explain_no_blocks(trace) if memory.has_events(trace) else say("no memory events were recorded")
    return Section("memory_curve", title, curve, note, empty, 10, chart, columns=tuple(columns))


def category_section(trace: Trace) -> Section:
    """Return the section with the memory over time by category, for the device with the highest peak.

    Each row of its table is a time interval. ``time_ns`` is its end, in ns since the first memory event. The other
    columns are the bytes of each category at the moment of the interval with the most allocated memory.
    """
    title, empty = say("Memory over time by category"), memory.explain_no_blocks(trace)
    if not memory.has_peak(trace):
        return Section("memory_category_curve", title, pd.DataFrame(columns=["time_ns"]), empty=empty)
    events, level = memory.memory_events(trace), memory_categories.levels(trace)
    position, _ = memory.peaks(trace, ViewRequest())
    pool = int(level.at(events, np.arange(len(position)), position).sum(axis=1).argmax())
    first, stop = np.searchsorted(events.pool, [pool, pool + 1])
    levels = np.vstack([level.before[pool], level.after[first:stop]])
    time = np.append(0, since_first_event(trace, events.row[first:stop]))
    ends = np.linspace(0, time[-1], STRETCHES + 1)[1:].round().astype(np.int64)
    # An interval begins with the level of the last event before it, and ends with its last event.
    begins = np.maximum(np.searchsorted(time, np.append(0, ends[:-1]), side="right") - 1, 0)
    # In a damaged file, the times may not ascend.
    bounds = zip(begins, np.maximum(np.searchsorted(time, ends, side="right"), begins + 1), strict=True)
    total = levels.sum(axis=1)
    highest = levels[[begin + int(total[begin:end].argmax()) for begin, end in bounds]]
    columns, table = [_TIME], {"time_ns": ends}
    for number in np.flatnonzero(highest.any(axis=0)).tolist():
        category = memory_categories.CATEGORIES[number]
        name = f"{category}_bytes"
        table[name] = highest[:, number]
        columns.append(size(name, worded(category, memory_categories.COLUMN), quantity="level", heading="proper"))
    pool_row = memory.pool_table(trace, events, np.array([pool]), {}).iloc[0]
    device = pool_row["device"]
    if len(events.pool_rank) > 1 and pd.notna(pool_row["rank"]):
        device = say("rank {rank} {device}", rank=int(pool_row["rank"]), device=device)
    text = mark("{device}, at the highest level in each of {count} time intervals.")
    chart = Chart("bar", "time_ns", tuple(column.name for column in columns[1:]))
    note = say(text, device=device, count=STRETCHES)
    curve = pd.DataFrame(table)
    return Section("memory_category_curve", title, curve, note, empty, 10, chart, columns=tuple(columns))


RANKS_VIEW: Final = "ranks"
MOST_CELLS: Final = 5000
"""Maximum number of rows on a page for the view ``ranks``. The view has one row per rank and step."""


def with_ranks(section: Section, tables: Mapping[str, pd.DataFrame]) -> Section:
    """Return the section of the view ranks with sentences and a heat map.

    The heat map has a row per rank and a column per step. If only one step was recorded, it has a column per part of
    the step. If there are too many steps, each column is the average of several steps.
    """
    if section.table.empty:
        return section
    late = stragglers(section.table, tables.get("stragglers", pd.DataFrame()))
    parts = tuple(name for name in map(str, section.table.columns) if name in by_name(partition.IN_STEPS))
    if section.table["step"].nunique() == 1:
        chart = Chart("heatmap", "", parts, by="rank", marked=late.ranks)
        return replace(section, lines=late.lines, chart=chart)
    table, note = fitting(section)
    numbers = ("own_time_ns", "dur_ns", "own_time_over_median_ns", "dur_over_median_ns", *parts)
    chart = Chart("heatmap", "step", numbers, by="rank", marked=late.ranks)
    return replace(section, table=table, note=f"{section.note} {note}".strip(), lines=late.lines, chart=chart)


def worst_rank(sections: Iterable[Section]) -> tuple[Text, ...]:
    """Return the sentence on the worst straggler for the head of the page, or nothing if there is no straggler."""
    return tuple(s.lines[0] for s in sections if s.name == RANKS_VIEW and s.chart and s.chart.marked)


def fitting(section: Section) -> tuple[pd.DataFrame, str]:
    """Return the table of the view ``ranks`` in at most ``MOST_CELLS`` rows, and a note that says how it was shortened.

    In a shortened table, a row is the mean over several steps (such as ``8–15``), rounded to ns. The mean leaves out
    unknown values. If the table is not shortened, the note is "".
    """
    table = section.table
    if len(table) <= MOST_CELLS:
        return table, ""
    steps = np.unique(table["step"].to_numpy(np.int64))
    stretches = max(MOST_CELLS // table["rank"].nunique(), 1)
    long = -(-len(steps) // stretches)
    stretch = np.searchsorted(steps, table["step"].to_numpy(np.int64)) // long
    times = [name for name in map(str, table.columns) if section.column(name).unit == "ns"]
    grouped = table[["rank", *times]].assign(stretch=stretch).groupby(["rank", "stretch"], sort=True)
    total, counts = grouped.sum(min_count=1), grouped.count()
    averages = pd.DataFrame(index=total.index)
    for name in times:
        mean = rounded_division(total[name].fillna(0).to_numpy(np.int64), counts[name].to_numpy(np.int64))
        averages[name] = pd.Series(mean, index=total.index).astype("Int64").where(counts[name] > 0)
    averages = averages.reset_index()
    ends = [steps[begin : begin + long][[0, -1]].tolist() for begin in range(0, len(steps), long)]
    labels = [str(first) if first == last else f"{first}–{last}" for first, last in ends]
    averages.insert(1, "step", [labels[stretch] for stretch in averages.pop("stretch")])
    text = mark("Each row is the average of up to {count} steps. perfkit summary --view ranks lists single steps.")
    return averages, say(text, count=long)
