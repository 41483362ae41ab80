"""Records whose times cannot be: records of another clock, and durations that overflowed.

An implausible record stays in the event table with the kind ``implausible``. Its duration is 0 and ``args`` keeps what
was recorded, so no average, step, window or date depends on it. If most work of a device has the same offset from its
launches, the clock of the device differs. Its durations and their order are right, so its work is moved by the offset.

The limits follow from recordings of CUDA, ROCm and MTIA devices (V100 to B200, MI210 to MI300X):

- Work never started before its launch. Profilers convert device times to the clock of the host, with errors below
  ``EARLY_NS``.
- Work waits for its launch queue, often for many ms. While it waited and its device was idle, at most 3 s passed (the
  driver loaded a module), so ``IDLE_NS`` is far above all of them.
- A stream runs one launch after the other. Only the nodes of one graph launch contain each other. With programmatic
  dependent launch, and with rounded times, launches overlap by up to 13 µs, but none contains a later one.
- Hosts pause for as long as their user likes, for example in a notebook, but not for ``PAUSE_NS``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import msgspec
import numpy as np
import pyarrow as pa

from perfkit_core.base.algorithms import groupby, intervals
from perfkit_core.base.algorithms.arrays import NO_ROW, BoolArray, IntArray
from perfkit_core.base.language.messages import message, plural
from perfkit_core.trace.assembly.draft import RECORDED_TYPES, RecordedEvents
from perfkit_core.trace.assembly.server_steps import with_args, with_kind
from perfkit_core.trace.model import schema
from perfkit_core.trace.model.meta import Finding
from perfkit_core.trace.model.trace import Trace

FAR: Final = "times-far-away"
OTHER_CLOCK: Final = "device-times-of-another-clock"
CLOCK_OFFSET: Final = "device-clock-offset"
OVERLONG: Final = "durations-too-long"
ABOVE_100: Final = "utilisation-above-100"
"""Codes of data-quality warnings."""

EARLY_NS: Final = 1_000_000
"""Device work that starts this long before its launch has a time of another clock. Work that overlaps the next launch
of its stream this long has a wrong duration."""
IDLE_NS: Final = 60 * 10**9
"""A device that has a launch does not stay idle for this time."""
PAUSE_NS: Final = 24 * 3600 * 10**9
"""Events that this time separates from all others are not of the same recording."""
_CONTAINS_NS: Final = 10_000
"""Work that ends this long after the end of a later launch of its stream has a wrong duration."""
_OVERFLOW_NS: Final = 10**9
"""Counters of durations overflow after seconds (2³¹ or 2³² ns). Shorter durations at the end are not judged."""
_UNUSUAL: Final = 100
"""The last work of a recording is too long if no other call of the same name took 1/_UNUSUAL of it."""
_LARGE_NS: Final = 2**61
"""Times of devices are cut to this distance from those of the host, so that their differences fit 64 bits."""
_NEVER: Final = np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True)
class Corrections:
    """What :func:`corrections` found. ``rows``: mask of the implausible records. ``start_ns``: the start that each row
    gets. Both have shape (rows,)."""

    rows: BoolArray
    start_ns: IntArray
    findings: tuple[Finding, ...]

    def recorded(self, draft: Trace, parent: IntArray | None) -> RecordedEvents:
        """Return the columns of a draft with corrected times. ``parent`` has the row of each row's parent."""
        rows = np.flatnonzero(self.rows)
        duration = draft.ints("dur_ns").copy()
        kinds = draft.pick("kind", rows).to_pylist()
        recorded = zip(draft.pick("args", rows).to_pylist(), kinds, draft.ints("start_ns")[rows].tolist(),
                       duration[rows].tolist(), strict=True)  # fmt: skip
        duration[rows] = 0
        args = [_with_times(*values) for values in recorded]
        changed = with_kind(with_args(draft, rows, args), rows, schema.IMPLAUSIBLE)
        changed = changed.with_columns(start_ns=pa.array(self.start_ns), dur_ns=pa.array(duration))
        columns = [name for name in RECORDED_TYPES if name == "args" or draft.has_values(name)]
        return RecordedEvents(pa.table({name: changed.column(name) for name in columns}), parent, draft.tables)


def _with_times(args: str | None, kind: str, start_ns: int, dur_ns: int) -> str:
    """Return ``args`` with the recorded kind and times added."""
    times = {"recorded_kind": kind, "recorded_start_ns": start_ns, "recorded_dur_ns": dur_ns}
    text = msgspec.json.encode(times).decode()
    return text if args is None or not args.startswith("{") or args == "{}" else f"{args[:-1]},{text[1:]}"


def corrections(trace: Trace) -> Corrections | None:
    """Return the corrections of the times in a trace of one process, or None if all times are plausible. The trace must
    have its launches (``launched_by``)."""
    memory = trace.rows("kind", schema.MEMORY)
    if memory.all():  # a history of allocations may begin days before it ends
        return None
    start, end = trace.ints("start_ns"), trace.end_ns
    host = trace.host | memory  # the host records memory events of devices
    calls = trace.host & ~memory  # memory may have been allocated days before
    compared = calls if calls.any() else np.ones(len(trace), np.bool_)
    far = _far(start, compared)
    near = compared & ~far
    last = int(start[len(near) - 1 - int(near[::-1].argmax())])
    overlong = near & (end > last + PAUSE_NS)
    window = int(start[near.argmax()]), int(end.max(where=near & ~overlong, initial=last))
    clock, offsets = _other_clock(trace, host, far, window)
    if offsets:
        start = start.copy()
        for _, rows, offset in offsets:
            start[rows] -= offset
    overlong |= _over_later_launches(trace, start, ~(far | clock | overlong)) | _over_later_steps(trace, ~far)
    overlong |= _beyond_the_end(trace, start, host, ~(far | clock), overlong)
    wrong = far | clock | overlong
    if not wrong.any() and not offsets:
        return None
    launched_by = trace.ints("launched_by")
    new_start = np.clip(start, *window)  # a record with a wrong duration keeps its start
    launched = clock & (launched_by != NO_ROW)
    new_start[launched] = start[launched_by[launched]]
    findings = _findings(trace, new_start, far, clock, overlong, offsets)
    return Corrections(wrong, np.where(far | clock, new_start, start), findings)


def above_100_percent(trace: Trace) -> tuple[Finding, ...]:
    """Return a note if kernels of a device run longer than the steps, so that its utilisation exceeds 100%."""
    kernels = np.flatnonzero(trace.rows("kind", schema.KERNEL))
    steps = np.flatnonzero(trace.host & trace.rows("kind", schema.STEP))
    if not len(kernels) or not len(steps):
        return ()
    start, end, devices = trace.ints("start_ns"), trace.end_ns, trace.codes("device")
    span = intervals.union_length_by(np.zeros(len(steps), np.int64), 1, start[steps], end[steps])
    used = devices.codes[kernels].astype(np.int64)
    busy = intervals.union_length_by(used, len(devices.values), start[kernels], end[kernels])
    names = sorted(devices.values[code] for code in np.flatnonzero(busy > span).tolist())
    if not names:
        return ()
    text = message(
        "the utilisation of {devices:list} exceeds 100% in the view device, because kernels outside the steps count",
        devices=tuple(names),
    )
    return (Finding(ABOVE_100, text, note=True),)


def is_window(window_ns: tuple[int, int] | None, start_ns: IntArray) -> bool:
    """Return whether the recorded start and end of a recording fit the sorted starts of its events."""
    if not window_ns:
        return False
    first, last = int(start_ns[0]), int(start_ns[-1])
    return first - PAUSE_NS <= window_ns[0] <= last and first <= window_ns[1] <= last + PAUSE_NS


_Offset = tuple[str, IntArray, int]
"""A device, rows of its work, and what to subtract from their starts, in ns."""


def _far(start: IntArray, compared: BoolArray) -> BoolArray:
    """Return the mask of the ``compared`` events that start at another time than most of them, shape (rows,). ``start``
    is sorted."""
    far = np.zeros(len(start), np.bool_)
    if not len(start) or 0 <= int(start[-1]) - int(start[0]) <= PAUSE_NS:  # usually
        return far
    rows = np.flatnonzero(compared)
    gaps = np.diff(start[rows].view(np.uint64))  # also right if a gap exceeds 63 bits
    if len(gaps) and gaps.max() > PAUSE_NS:
        group = np.append(0, np.cumsum(gaps > PAUSE_NS))
        # records without a time often have the same start, so the group with the most different starts counts
        different = np.bincount(group[np.append(True, gaps > 0)])
        far[rows] = group != len(different) - 1 - int(np.argmax(different[::-1]))
    return far


def _other_clock(
    trace: Trace, host: BoolArray, far: BoolArray, window: tuple[int, int]
) -> tuple[BoolArray, list[_Offset]]:
    """Return the mask of device events with times of another clock, and the devices whose clock has an offset."""
    start, launched_by = trace.ints("start_ns"), trace.ints("launched_by")
    clock, offsets = np.zeros(len(trace), np.bool_), list[_Offset]()
    device = np.flatnonzero(~host)
    if not len(device) or not host.any():
        return clock, offsets
    limits = max(window[0] - _LARGE_NS, -_NEVER), min(window[1] + _LARGE_NS, _NEVER)
    begin, launch = np.clip(start[device], *limits), launched_by[device]
    launched = (launch != NO_ROW) & ~far[launch]
    delay = np.where(launched, begin - start[launch], 0)
    last = max(window[1], int(begin[launched & (begin <= window[1] + IDLE_NS)].max(initial=window[1])))
    outside = ~launched & ((begin < window[0] - IDLE_NS) | (begin > last + IDLE_NS))
    if delay.min() >= -EARLY_NS and delay.max() <= IDLE_NS and not outside.any():
        return clock, offsets
    names, length, end = trace.codes("device"), window[1] - window[0], np.clip(trace.end_ns[device], *limits)
    for number in np.unique(names.codes[device]).tolist():
        here = names.codes[device] == number
        rows, lag, by_launch = device[here], delay[here], launched[here]
        wrong = by_launch & ((lag < -EARLY_NS) | _idle_before(begin[here], end[here], lag))
        shifted = lag[wrong]
        if 2 * len(shifted) > by_launch.sum() and _is_offset(shifted, begin[here][wrong], length):
            offset = int(shifted.min())
            moved = begin[here] - offset
            inside = (moved >= window[0] - length) & (moved <= window[1] + length)
            moves = np.where(by_launch, lag - offset <= length, inside)
            offsets.append((names.values[number], rows[moves], offset))
            wrong &= ~moves
            outside[here] &= ~moves
        clock[rows[wrong]] = True
    clock[device[outside]] = True
    return clock, offsets


def _idle_before(start: IntArray, end: IntArray, delay: IntArray) -> BoolArray:
    """Return the mask of the events of a device that were launched over ``IDLE_NS`` before the device's last pause of
    this length ended, shape (events,). Such work ran later than its launch explains."""
    if delay.max() <= IDLE_NS:
        return np.zeros(len(start), np.bool_)
    busy_until = np.append(start[0] - IDLE_NS - 1, np.maximum.accumulate(end)[:-1])
    pause = np.where(start - busy_until > IDLE_NS, np.arange(len(start)), 0)
    pause_end = start[np.maximum.accumulate(pause)]
    late: BoolArray = start - delay < pause_end - IDLE_NS
    return late


def _is_offset(delay: IntArray, start: IntArray, length_ns: int) -> bool:
    """Return whether these delays, without one constant offset, are those of a recording of this length. Work that lost
    its times has one and the same start."""
    return bool(delay.max() - delay.min() <= length_ns and 2 * len(np.unique(start)) > len(start))


def _over_later_launches(trace: Trace, start: IntArray, good: BoolArray) -> BoolArray:
    """Return the mask of work that runs over work of a later launch of its stream, shape (rows,). Work without a
    launching call is compared only if there are no such calls and it has a correlation id, because its place in the
    order of a stream is unknown. The tasks of one collective of an NPU overlap.
    """
    mask = np.zeros(len(trace), np.bool_)
    work = trace.rows("kind", *schema.DEVICE_WORK) & good
    calls = np.append(trace.rows("kind", schema.RUNTIME, schema.SYNC), False)
    launched = work & calls[trace.ints("launched_by")]
    rows = np.flatnonzero(launched if launched.any() else work & (trace.ints("correlation") >= 0))
    if len(rows) < 2:
        return mask
    if start is not trace.ints("start_ns"):  # moved work is no longer in order
        rows = rows[np.argsort(start[rows], kind="stable")]
    stream = trace.ints("stream")[rows]
    keys = [trace.codes("device").codes[rows].astype(np.int64), stream]
    lane, first = groupby.distinct(keys, len(rows))
    order = groupby.stable_order(lane, len(first))
    rows, lane, stream = rows[order], lane[order], stream[order]
    begin, end = start[rows], start[rows] + trace.ints("dur_ns")[rows]
    overlaps = (lane[1:] == lane[:-1]) & (end[:-1] > begin[1:] + _CONTAINS_NS) & (stream[1:] >= 0)
    for number in np.unique(lane[1:][overlaps]).tolist():
        here = slice(*np.searchsorted(lane, [number, number + 1]))
        begins, ends, launch = np.append(begin[here], _NEVER), end[here], _launch_ids(trace, rows[here])
        earliest = np.append(np.minimum.accumulate(ends[::-1])[::-1], _NEVER)  # of the ends from a position on
        # the nodes of one launch may run in parallel: compare with the work after the last node
        border = np.append(np.flatnonzero(launch[1:] != launch[:-1]) + 1, len(ends))
        after = border[np.searchsorted(border, np.arange(len(ends)), side="right")]
        mask[rows[here]] = (ends - _CONTAINS_NS > earliest[after]) | (ends - EARLY_NS > begins[after])
    return mask


def _launch_ids(trace: Trace, rows: IntArray) -> IntArray:
    """Return a number for each row that only the work of one launch shares, shape (rows,)."""
    correlation = trace.ints("correlation")[rows]
    ids = np.where(correlation >= 0, -2 - correlation, _NEVER - rows)
    launched_by = trace.ints("launched_by")[rows]
    return np.where(launched_by != NO_ROW, launched_by, ids)


def _over_later_steps(trace: Trace, good: BoolArray) -> BoolArray:
    """Return the mask of numbered steps that contain a later step, shape (rows,). If numbers are repeated or not in
    order, several loops count steps, which may be nested."""
    mask = np.zeros(len(trace), np.bool_)
    rows = np.flatnonzero(trace.host & trace.rows("kind", schema.STEP) & good)
    if len(rows) < 2:
        return mask
    number, end = trace.ints("step")[rows], trace.end_ns[rows]
    if number[0] >= 0 and (np.diff(number) > 0).all():
        mask[rows[:-1]] = end[:-1] - _CONTAINS_NS > np.minimum.accumulate(end[::-1])[::-1][1:]
    return mask


def _beyond_the_end(trace: Trace, start: IntArray, host: BoolArray, timed: BoolArray, overlong: BoolArray) -> BoolArray:
    """Return the mask of work whose end is so far behind everything else that its duration is wrong, shape (rows,).
    ``timed``: mask of the rows with a usable start. ``overlong``: mask of the rows with a wrong duration."""
    mask = np.zeros(len(trace), np.bool_)
    work, duration = trace.rows("kind", *schema.DEVICE_WORK), trace.ints("dur_ns")
    long = work & timed & ~overlong & (duration > _OVERFLOW_NS)
    if not long.any():
        return mask
    end, names = start + duration, trace.codes("name").codes
    first, last = int(start[timed].min()), int(start[timed].max())
    last = max(last, int(end[timed & ~overlong & host].max(initial=last)))
    behind = long & (duration > last - first) & (end > last)
    for name in np.unique(names[behind]).tolist():
        alike = work & (names == name)
        usual = duration[alike & timed & ~overlong & ~behind]
        longest = 0 if (alike & overlong).any() else int(usual.max()) if len(usual) > 1 else _NEVER
        rows = np.flatnonzero(behind & alike)
        mask[rows] = (duration[rows] // _UNUSUAL > longest) | (end[rows] > last + IDLE_NS)
    return mask


def _findings(
    trace: Trace, new_start: IntArray, far: BoolArray, clock: BoolArray, overlong: BoolArray, offsets: list[_Offset]
) -> tuple[Finding, ...]:
    """Return the warnings. ``new_start``: the start that each row of another time gets."""
    findings = []
    if far.any():
        text = plural(
            "1 event is more than a day away from all others, so its time is not used: it has the time of another "
            "clock, or its time was lost",
            "{n} events are more than a day away from all others, so their times are not used: they have times of "
            "another clock, or their times were lost",
            int(far.sum()),
        )
        findings.append(Finding(FAR, text))
    if clock.any():
        text = plural(
            "1 device event cannot have run at its recorded time, {time:ns} from its launch or from all other events: "
            "it has the time of another clock, which is not used",
            "{n} device events cannot have run at their recorded times, up to {time:ns} from their launches or from "
            "all other events: they have times of another clock, which are not used",
            int(clock.sum()),
            time=int(np.abs(trace.ints("start_ns") - new_start)[clock].max()),
        )
        findings.append(Finding(OTHER_CLOCK, text))
    for device, rows, offset in offsets:
        text = message(
            "the clock of {device} differs by {time:ns} from that of the host: its {count} events are moved so that "
            "none begins before its launch. Times between host and device are not exact",
            device=device,
            time=abs(offset),
            count=len(rows),
        )
        findings.append(Finding(CLOCK_OFFSET, text))
    if overlong.any():
        text = plural(
            "1 event has an impossible duration, so it is not used: it overlaps later work of its stream, or ends far "
            "after the recording. A counter of the driver may have overflowed, as is known from ROCm",
            "{n} events have impossible durations, so these are not used: they overlap later work of their streams, "
            "or end far after the recording. A counter of the driver may have overflowed, as is known from "
            "ROCm",
            int(overlong.sum()),
        )
        findings.append(Finding(OVERLONG, text))
    return tuple(findings)
