"""Views of the memory of each device: ``memory_places`` (at the start, the peak and the end), ``memory_steps`` (what
each step leaves), ``memory_curve`` (after each event) and ``memory_checks`` (inconsistent events).

In steady training, the memory that steps leave allocated does not grow. All columns of ``memory_checks`` after
``events`` are 0 if every memory event of the process was recorded, in order and with its address. If no event is
missing, but two threads recorded events out of order, only ``unexplained_changes`` is above 0."""

from __future__ import annotations

import numpy as np
import pandas as pd

from perfkit_core.base.algorithms.arrays import IntArray
from perfkit_core.base.language.messages import message
from perfkit_core.plugins.contracts import Listed, View, ViewRequest
from perfkit_core.trace.model.columns import DEVICE_NAME, RANK, STEP, count, key, position, share, size
from perfkit_core.trace.model.trace import Trace
from perfkit_core.views.memory import events as memory
from perfkit_core.views.memory.events import (
    MISSING,
    StepEnds,
    blocks,
    counted_bytes,
    explain_empty,
    levels,
    memory_events,
    pool_table,
)
from perfkit_core.views.memory.memory import chosen, innermost, names
from perfkit_core.views.select import accounted, in_steps, selected, since_first_event


def places_table(trace: Trace, request: ViewRequest) -> pd.DataFrame:
    """Return one row per device, with :data:`COLUMNS`. Numbers that were not recorded are NA."""
    events, level = memory_events(trace), memory.levels(trace)
    counted = np.flatnonzero(chosen(trace, request, events.row, names(trace, innermost(trace, events.row), events.row)))
    pools = np.unique(events.pool[counted])
    process_peaks = memory.arguments(trace, events.row[counted], [["peak_allocated"], ["peak_reserved"]])
    bounds = np.searchsorted(events.pool[counted], pools[1:])  # events are sorted by pool
    rows, since = [], since_first_event(trace, events.row)
    columns = (counted, memory.counted_bytes(events)[counted], *process_peaks)
    parts = (np.split(values, bounds) for values in columns)  # without pools, zip ignores the one empty part
    for pool, at, change, peak_allocated, peak_reserved in zip(pools, *parts, strict=False):
        start, (position, peak) = memory.before(level, events, int(at[0])), memory.peak(level, events, at)
        history = not memory.states(trace)[pool]
        recorded = history and level.allocated[at[0]] != MISSING
        reserved = int(level.reserved[position]) if recorded and position >= events.first()[pool] else 0
        rows.append({
            "allocations": int((~events.reserve[at] & (change >= 0)).sum()),
            "frees": int((change < 0).sum()),
            "start_bytes": start if recorded else MISSING,
            "peak_bytes": peak if recorded else MISSING,
            "peak_time_ns": MISSING if not history else int(since[position]) if position >= events.first()[pool] else 0,
            "end_bytes": int(level.allocated[at[-1]]),
            "growth_bytes": int(change.sum()) if history else MISSING,
            "peak_growth_bytes": peak - start if history else MISSING,
            "peak_reserved_bytes": int(level.reserved[at].max()) if history else MISSING,
            # a reserve that does not contain all allocated memory, as on Paddle's CPU, says nothing
            "fragmentation_bytes": reserved - peak if history and reserved >= max(peak, 1) else MISSING,
            "process_peak_bytes": int(peak_allocated.max()),
            "process_peak_reserved_bytes": int(peak_reserved.max()),
        })  # fmt: skip
    every = [column.name for column in PLACES_COLUMNS]
    measures = pd.DataFrame(rows, columns=[name for name in every[2:] if name != "fragmentation_ratio"])
    values = {str(name): measures[name].to_numpy(np.int64) for name in measures}
    result = memory.pool_table(trace, events, pools, values)
    unused = result["fragmentation_bytes"].astype("Float64")
    result["fragmentation_ratio"] = unused / (unused + result["peak_bytes"])
    return result[every]


PLACES_COLUMNS = (
    RANK,
    DEVICE_NAME,
    count("allocations", "Allocations", exact=True),
    count("frees", "Frees", exact=True),
    size("start_bytes", "Start", "total before the first event"),
    size("peak_bytes", "Peak", "highest total, including earlier allocations", over="capture"),
    position("peak_time_ns", "Peak time", "time since the first event", over="capture"),
    size("end_bytes", "End"),
    size("growth_bytes", "Growth", "sum of the recorded changes"),
    size("peak_growth_bytes", "Peak growth", "peak less start", over="capture"),
    size("peak_reserved_bytes", "Peak reserved", over="capture"),
    size("fragmentation_bytes", "Unused reserve", "reserve at the peak, less the peak", over="capture"),
    share("fragmentation_ratio", "Unused reserve", over="capture", description="share of the reserve at the peak"),
    size("process_peak_bytes", "Process peak", "peak since the process began", over="capture"),
    size("process_peak_reserved_bytes", "Process peak reserved", over="capture"),
)

PLACES_VIEW = View(
    name="memory_places",
    title="Memory of each device",
    description="memory allocated on each device at the start, at the peak and at the end of the recording",
    table=Listed(places_table, of_capture=memory.has_events),
    columns=PLACES_COLUMNS,
    explain_empty=memory.explain_empty,
)


def steps_table(trace: Trace, request: ViewRequest) -> pd.DataFrame:
    """Return one row per device and step, with :data:`COLUMNS`. Unknown numbers are NA."""
    events, ends, level = memory.memory_events(trace), memory.step_ends(trace), memory.levels(trace)
    allocated = np.zeros(len(ends.step) + 1, np.int64)
    of_step = ends.of(np.arange(len(events.row)))
    np.add.at(allocated, of_step, np.maximum(memory.counted_bytes(events), 0))
    columns = {"step": trace.ints("step")[ends.step], "allocated_bytes": allocated[:-1]}
    for name, until in (("alive", np.arange(len(ends.step))), ("alive_next", ends.follower),
                        ("alive_last", ends.run_last)):  # fmt: skip
        columns[f"{name}_blocks"], columns[f"{name}_bytes"] = _alive(trace, ends, until)

    # if no event of the pool precedes a step, use the level before the recording
    pool, first = ends.pool, events.first()[ends.pool]
    before = np.where(level.start == MISSING, 0, level.start)[pool]
    after, start = (
        np.where(position < first, before, level.best(np.maximum(position, 0)) if len(level.growth) else 0)
        for position in (ends.last, ends.first - 1)
    )
    follows = np.append(False, ends.follower[:-1] >= 0)[: len(after)]
    columns["end_bytes"] = np.where(level.start[pool] != MISSING, after, MISSING)
    columns["growth_bytes"] = after - np.where(follows, np.append(0, after[:-1])[: len(after)], start)

    accounted_pools = np.unique(events.pool[accounted(trace, request)[events.row]])
    counted = in_steps(trace, request)[ends.step] & np.isin(pool, accounted_pools)
    return memory.pool_table(trace, events, pool, columns)[counted].reset_index(drop=True)


def _alive(trace: Trace, ends: StepEnds, until: IntArray) -> tuple[IntArray, IntArray]:
    """Return, for each step i, how many of its blocks are alive at the end of the step ``until[i]``, and their bytes.
    Both are MISSING if ``until[i]`` is -1, or if events of the pool have no address."""
    events, blocks = memory.memory_events(trace), memory.blocks(trace)
    step = ends.of(blocks.allocation)
    stays = (step >= 0) & blocks.alive(np.append(np.append(ends.last, -1)[until], -1)[step])
    count, size = np.zeros(len(ends.step), np.int64), np.zeros(len(ends.step), np.int64)
    np.add.at(count, step[stays], 1)
    np.add.at(size, step[stays], events.change[blocks.allocation[stays]])
    unknown = (until < 0) | np.isin(ends.pool, events.pool[blocks.placeless])
    return np.where(unknown, MISSING, count), np.where(unknown, MISSING, size)


STEPS_COLUMNS = (
    RANK,
    DEVICE_NAME,
    key("step", "Step", thing="step"),
    size("allocated_bytes", "Allocated"),
    count("alive_blocks", "Alive blocks", "allocated in the step and alive at its end", exact=True),
    size("alive_bytes", "Alive"),
    count("alive_next_blocks", "Alive next blocks", "also alive at the end of the next step", exact=True),
    size("alive_next_bytes", "Alive next"),
    count("alive_last_blocks", "Alive last blocks", "also alive at the end of the last step", exact=True),
    size("alive_last_bytes", "Alive last"),
    size("end_bytes", "End", "total at the end of the step"),
    size("growth_bytes", "Growth", "growth since the end of the previous step"),
)

STEPS_VIEW = View(
    name="memory_steps",
    title="Memory of each step",
    description=(
        "memory that each step allocated, and how much of it remains when the step ends, when the next step ends, and "
        "when the last step ends; memory is not followed across a gap in the step numbers"
    ),
    table=steps_table,
    columns=STEPS_COLUMNS,
    explain_empty=lambda trace: (
        message("no training steps were recorded") if memory.has_events(trace) else memory.explain_empty(trace)
    ),
)


def curve_table(trace: Trace, request: ViewRequest) -> pd.DataFrame:
    """Return one row per event, and a row at time 0 with the memory that was allocated before the recording."""
    events, level = memory_events(trace), levels(trace)
    counted = chosen(trace, request, events.row, names(trace, innermost(trace, events.row), events.row))
    # the row at time 0 is not an event: show it only without filters
    unfiltered = all(option is None for option in (request.steps, request.pattern, request.device, request.kind))
    at = events.first()
    unknown = np.full(len(at), MISSING)
    columns = {
        "time_ns": np.insert(since_first_event(trace, events.row), at, 0),
        "step": np.insert(trace.ints("step", MISSING)[events.row], at, MISSING),
        "change_bytes": np.insert(counted_bytes(events), at, 0),
        "growth_bytes": np.insert(level.growth, at, 0),
        "allocated_bytes": np.insert(level.allocated, at, level.start),
        "reserved_bytes": np.insert(level.reserved, at, unknown),
        "unexplained_bytes": np.insert(level.unexplained, at, unknown),
    }
    result = pool_table(trace, events, np.insert(events.pool, at, np.arange(len(at))), columns)
    return result[np.insert(counted, at, unfiltered)].reset_index(drop=True)


CURVE_COLUMNS = (
    RANK,
    DEVICE_NAME,
    position("time_ns", "Time", "time since the rank's first event"),
    STEP,
    size("change_bytes", "Change"),
    size("growth_bytes", "Growth", "sum of all changes so far"),
    size("allocated_bytes", "Allocated", "recorded total"),
    size("reserved_bytes", "Reserved"),
    size("unexplained_bytes", "Unexplained", "change of the total that no event explains"),
)

CURVE_VIEW = View(
    name="memory_curve",
    title="Memory over time",
    description="allocated and reserved memory of each device after every allocation and free",
    table=curve_table,
    columns=CURVE_COLUMNS,
    explain_empty=explain_empty,
    report="",
)


def checks_table(trace: Trace, request: ViewRequest) -> pd.DataFrame:
    """Return one row per device, with :data:`COLUMNS`. Unexplained changes are NA if no totals were recorded."""
    events, pool_blocks, moved = memory_events(trace), blocks(trace), levels(trace).unexplained
    counted = selected(trace, request)[events.row]

    def per_pool(position: IntArray, values: IntArray | int = 1) -> IntArray:
        total = np.zeros(len(events.pool_rank), np.int64)
        mask = counted[position]
        np.add.at(total, events.pool[position[mask]], np.broadcast_to(values, position.shape)[mask])
        return total

    unexplained = np.flatnonzero((moved != 0) & (moved != MISSING))
    has_totals = np.isin(np.arange(len(events.pool_rank)), events.pool[moved != MISSING])
    columns = {
        "events": per_pool(np.arange(len(events.row))),
        "unexplained_changes": np.where(has_totals, per_pool(unexplained), MISSING),
        "unexplained_bytes": np.where(has_totals, per_pool(unexplained, moved[unexplained]), MISSING),
        "old_frees": per_pool(pool_blocks.unmatched),
        "old_freed_bytes": per_pool(pool_blocks.unmatched, -events.change[pool_blocks.unmatched]),
        "repeated_allocations": per_pool(pool_blocks.repeated),
        "resized_frees": per_pool(pool_blocks.resized),
        "without_address": per_pool(pool_blocks.placeless),
    }
    pools = np.flatnonzero(columns["events"])
    return pool_table(trace, events, pools, {name: values[pools] for name, values in columns.items()})


CHECKS_COLUMNS = (
    RANK,
    DEVICE_NAME,
    count("events", "Events"),
    count("unexplained_changes", "Unexplained changes", "changes of the total that no event explains"),
    size("unexplained_bytes", "Unexplained"),
    count("old_frees", "Old frees", "frees of blocks that were allocated before the recording", exact=True),
    size("old_freed_bytes", "Old freed"),
    count("repeated_allocations", "Repeated allocations", "allocations at an address in use", exact=True),
    count("resized_frees", "Resized frees", "frees of a different size than the allocation", exact=True),
    count("without_address", "Without address"),
)

CHECKS_VIEW = View(
    name="memory_checks",
    title="Consistency of memory events",
    description="recorded memory events, and how many of them are inconsistent, such as frees without an allocation; "
    "columns of zeros are not shown in text",
    table=checks_table,
    columns=CHECKS_COLUMNS,
    explain_empty=explain_empty,
    report="",
)
