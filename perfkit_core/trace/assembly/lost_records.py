"""Device work that ran but was not recorded: launch calls without device work, and replays of graphs without nodes.

- A *launch call* is a runtime call that launches a kernel, a copy or a graph. Its name says so, or most calls of this
  name have device work. Fills are left out, because a fill of 0 bytes runs nothing. So are calls that a graph capture
  records: they launch nothing. A launch call inside another one counts with the outer call.
- A launch call is *lost* if the device had time for its work before the recording ended, but no device work has its
  correlation id. It is *cut off* if the recording ended before its work did.
- A replay of a graph is *incomplete* if some of its nodes were not recorded
  (:mod:`perfkit_core.trace.assembly.graph_replays`).
- A step is incomplete if a lost launch or an incomplete replay lies in it, or if the missing work would have run in it.
  Of such a step, nothing is known about the time in which devices are idle.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from perfkit_core.base.algorithms import groupby, nesting
from perfkit_core.base.algorithms.arrays import NO_ROW, BoolArray, IntArray
from perfkit_core.base.language.messages import Message, mark, message, plural
from perfkit_core.trace.assembly import server_steps
from perfkit_core.trace.assembly.graph_capture import calls_named, captured
from perfkit_core.trace.assembly.graph_replays import Replays
from perfkit_core.trace.model import schema
from perfkit_core.trace.model.cache import once
from perfkit_core.trace.model.meta import OPERATORS_LEFT_OUT, Finding
from perfkit_core.trace.model.trace import Trace

LOST: Final = "launches-without-device-work"
INCOMPLETE_REPLAYS: Final = "graph-replays-incomplete"
CUT_OFF: Final = "launches-cut-off"
DROPPED: Final = "records-dropped"
"""Code of the finding that the recorder itself reports lost records."""
CODES: Final = frozenset({LOST, INCOMPLETE_REPLAYS})
"""Codes of findings with which some steps are incomplete."""
_LAUNCH: Final = re.compile(
    r"(?:cuda|hip|cu|mu|ze|ur|acl)\w*(?:Launch\w*Kernel|KernelLaunch|GraphLaunch)|(?:cuda|hip|cu|mu)Memcpy"
)
_FILL: Final = re.compile(r"\w*?(?:Memset|Fill)", re.IGNORECASE)
_WAIT: Final = re.compile(r"(?:cuda|hip|cu|mu)(?:Device|Ctx)Synchronize")
_USUALLY: Final = 0.5
"""A runtime call with another name is a launch call if at least this share of the calls of its name has device work."""
_REPORTED: Final = re.compile(
    r"[1-9]\d* (?:[\w-]+ ){0,3}(?:records?|events?|buffers?|samples?) (?:[\w-]+ ){0,2}(?:dropped|lost)\b"
    r"|\b(?:dropped|lost)(?: \w+)? ?[:=]? ?[1-9]\d*(?: [\w-]+){0,4}"
    r"|not all [\w ]{1,60} collected|stopped early\? = [1-9]\d*|exceeded max GPU buffer count[^.;]{0,40}",
    re.IGNORECASE,
)
"""Texts in the log of a profiler that report lost records."""
_NAMED: Final = 3
"""Maximum number of names and of steps in a finding."""


_FEWEST_NUMBERS: Final = 100
_FOLLOWS: Final = 0.9
"""Minimum share of the numbers of operators that follow the number before, if none was left out. A recording that was
cut lacks whole ranges of numbers."""


def left_out_operators(numbers: IntArray) -> tuple[Finding, ...]:
    """Report that operators were left out, if ``numbers``, which the profiler gave to all operators in a row, have
    holes. Shape (operators in the recording,), -1 for none."""
    numbers = np.unique(numbers[numbers >= 0])
    if len(numbers) < _FEWEST_NUMBERS or (np.diff(numbers) == 1).mean() >= _FOLLOWS:
        return ()
    text = message(
        "only {count:count} of {numbers:count} operators are in the recording, by their numbers; device work may be "
        "missing as well",
        count=len(numbers), numbers=int(numbers[-1] - numbers[0]) + 1,
    )  # fmt: skip
    return (Finding(OPERATORS_LEFT_OUT, text),)


@dataclass(frozen=True, slots=True)
class LostRecords:
    """Launch calls and replays whose device work is missing, and the steps that are therefore incomplete."""

    launches: int  # number of launch calls, without those inside others
    lost: IntArray  # rows of the lost launch calls
    cut_off: IntArray  # rows of the launch calls that were cut off
    implausible: int  # number of lost launch calls with device work whose times cannot be
    replays: Replays
    steps: IntArray  # rows of the incomplete steps

    def __bool__(self) -> bool:
        return bool(len(self.lost) or len(self.replays.incomplete))


@once
def lost_records(trace: Trace) -> LostRecords:
    calls, missing = _launch_calls(trace)
    rows, replays = calls[missing], Replays.of(trace)
    if not len(rows) and not len(replays.incomplete):
        return LostRecords(len(calls), rows, rows, 0, replays, rows)
    cut_off, due_ns = _due(trace, rows)
    lost = rows[~cut_off]
    at = [(lost, trace.ints("start_ns")[lost]), (lost, due_ns[~cut_off]), *replays.spans]
    of_work = ~trace.host & trace.rows("kind", schema.IMPLAUSIBLE)
    return LostRecords(
        len(calls), lost, rows[cut_off], int(np.isin(lost, trace.ints("launched_by")[of_work]).sum()),
        replays, _steps(trace, at),
    )  # fmt: skip


def incomplete_steps(trace: Trace) -> BoolArray:
    """Return the mask of the steps whose device work is incomplete, shape (rows,)."""
    mask = np.zeros(len(trace), np.bool_)
    mask[lost_records(trace).steps] = True
    return mask


@once
def measured(trace: Trace) -> BoolArray:
    """Return the mask of the events without the incomplete steps, and without the events of ranks that have no complete
    step. A rank without steps has lost nothing, or has none of these events. Shape (rows,)."""
    records, mask = lost_records(trace), ~incomplete_steps(trace)
    steps, rank = trace.host & trace.rows("kind", schema.STEP) & mask, trace.ints("rank")
    for number in np.unique(rank[np.append(records.lost, records.replays.incomplete)]).tolist():
        if not (steps & (rank == number)).any():
            mask[rank == number] = False
    return mask


def is_measured(trace: Trace) -> bool:
    """Return whether the device work of at least one step is complete; without steps, of a whole rank."""
    return not lost_records(trace) or bool(measured(trace).any())


def complete_only(trace: Trace) -> Trace:
    """Return the trace without its incomplete steps, whose events then belong to no step. If no step is complete,
    return the trace unchanged."""
    steps = lost_records(trace).steps
    return server_steps.without_steps(trace, steps) if len(steps) and is_measured(trace) else trace


def _launch_calls(trace: Trace) -> tuple[IntArray, BoolArray]:
    """Return the rows of the launch calls, and a mask of those without device work."""
    names, launched_by = trace.codes("name"), trace.ints("launched_by")
    runtime = np.flatnonzero(trace.host & trace.rows("kind", schema.RUNTIME))
    without_work = trace.host | trace.rows("kind", schema.SYNC, schema.IMPLAUSIBLE)
    work = np.flatnonzero(~without_work & (launched_by != NO_ROW))
    has_work = np.zeros(len(trace), np.bool_)
    has_work[launched_by[work]] = True
    code = names.codes[runtime]
    count, with_work = (
        np.bincount(part[part >= 0], minlength=len(names.values)) for part in (code, code[has_work[runtime]])
    )
    launching = (with_work > 0) & (with_work >= _USUALLY * count)
    for at in np.flatnonzero(count).tolist():
        name = names.values[at]
        launching[at] = not _FILL.match(name) and (launching[at] or bool(_LAUNCH.match(name)))
    calls = runtime[np.append(launching, False)[code]]
    missing = ~has_work[calls]
    if not missing.any():  # usually
        return calls, missing
    mask = np.zeros(len(trace), np.bool_)
    mask[calls] = True
    parent = trace.ints("parent")
    outer = nesting.outermost(parent, mask)
    around = outer[launched_by[work]]
    has_work[around[around != NO_ROW]] = True
    # device work without a correlation id belongs to the operator, so its calls cannot be told from lost ones
    by_operator = nesting.lies_in(parent, has_work & ~mask & trace.operators)
    calls = calls[outer[calls] == calls]
    calls = calls[has_work[calls] | ~(by_operator[calls] | captured(trace, calls))]
    return calls, ~has_work[calls]


def _due(trace: Trace, rows: IntArray) -> tuple[BoolArray, IntArray]:
    """Return, for each launch call without device work, whether it is cut off, and when its work should have begun.
    Work begins as long after its launch as that of the last earlier launch with work. It is cut off if it cannot end
    within the recording when it waits as long as the last work of a stream and takes as long as the longest work. If
    only one stream is used at the end, work before other work of the stream is not cut off. Nor is work for which the
    host has waited."""
    cut_off, due_ns = np.zeros(len(rows), np.bool_), trace.ints("start_ns")[rows]
    if not len(rows):
        return cut_off, due_ns
    start, end, launched_by, rank = trace.ints("start_ns"), trace.end_ns, trace.ints("launched_by"), trace.ints("rank")
    work = np.flatnonzero(trace.rows("kind", *schema.DEVICE_WORK) & (launched_by != NO_ROW))
    for number in np.unique(rank[rows]).tolist():
        here, mine = rank[rows] == number, work[rank[work] == number]
        if not len(mine):
            continue
        lag = start[mine] - start[launched_by[mine]]
        stream, _ = groupby.distinct([trace.codes("device").codes[mine], trace.ints("stream")[mine]], len(mine))
        last = len(mine) - 1 - np.unique(stream[::-1], return_index=True)[1]  # rows are sorted by start
        from_ns = int(end[rank == number].max() - lag[last].max() - trace.ints("dur_ns")[mine].max())
        cut_off[here] = start[rows[here]] >= from_ns
        at_end = start[launched_by[mine]] >= from_ns
        if len(np.unique(stream[at_end])) == 1:
            cut_off[here] &= rows[here] > launched_by[mine].max()
        waits = (rank == number) & calls_named(trace, _WAIT, schema.SYNC)
        cut_off[here] &= rows[here] > np.flatnonzero(waits).max(initial=NO_ROW)
        order = np.argsort(launched_by[mine], kind="stable")
        before = np.maximum(np.searchsorted(launched_by[mine][order], rows[here]) - 1, 0)
        due_ns[here] += np.maximum(lag[order][before], 0)
    return cut_off, due_ns


def _steps(trace: Trace, spans: Sequence[tuple[IntArray, IntArray]]) -> IntArray:
    """Return the rows of the steps that contain one of the times. Each span has rows, whose rank counts, and times."""
    steps = np.flatnonzero(trace.host & trace.rows("kind", schema.STEP))
    rank, start, end = trace.ints("rank"), trace.ints("start_ns")[steps], trace.end_ns[steps]
    chosen = np.zeros(len(steps), np.bool_)
    for rows, time_ns in spans:
        for number in np.unique(rank[rows]).tolist() if len(steps) else ():
            mine = np.flatnonzero(rank[steps] == number)  # sorted by start
            times = time_ns[rank[rows] == number]
            at = np.searchsorted(start[mine], times, "right") - 1
            hit = mine[at[at >= 0]]
            chosen[hit[times[at >= 0] < end[hit]]] = True
    return steps[chosen]


def findings(trace: Trace) -> tuple[Finding, ...]:
    """Return the findings on device work that was not recorded, of a trace of one rank."""
    records = lost_records(trace)
    result = []
    if len(records.lost):
        text = message(
            "{lost} of {count} launch calls have no device work ({names:list}), {place}: {cause}{steps}",
            lost=len(records.lost), count=records.launches, names=_counted(trace, records.lost),
            place=_where(trace, records.lost), cause=_cause(trace, records), steps=_consequence(trace),
        )  # fmt: skip
        result.append(Finding(LOST, text))
    if len(records.replays.incomplete):
        result.append(Finding(INCOMPLETE_REPLAYS, _about_replays(trace, records.replays)))
    if len(records.cut_off):
        text = plural(
            "{n} launch call at the end has no device work ({names:list}): the recording ended before its work did",
            "{n} launch calls at the end have no device work ({names:list}): the recording ended before their work did",
            len(records.cut_off), names=_counted(trace, records.cut_off),
        )  # fmt: skip
        result.append(Finding(CUT_OFF, text, note=True))
    return tuple(result)


def reported(log: Iterable[str]) -> tuple[Finding, ...]:
    """Return a finding if the log of the profiler says that records were lost."""
    phrases = dict.fromkeys(match[0] for text in log for match in _REPORTED.finditer(text))
    if not phrases:
        return ()
    text = message("the profiler reports lost records: {phrases:list}", phrases=list(phrases)[:_NAMED])
    return (Finding(DROPPED, text),)


def _about_replays(trace: Trace, replays: Replays) -> Message:
    lack = []
    if replays.nodes:
        lack.append(message("{nodes:count} nodes that other replays of the same graphs have", nodes=replays.nodes))
    if replays.gap_ns:
        text = mark("probably the kernels that ran in {time:ns} next to fills and copies, in which no work is recorded")
        lack.append(message(text, time=replays.gap_ns))
    return message(
        "{count} of {replays} replays of graphs are incomplete, {place}: the recording lacks {lack:and}. The buffers "
        "of the profiler probably overflowed{steps}",
        count=len(replays.incomplete), replays=replays.count, place=_where(trace, replays.incomplete), lack=lack,
        steps=_consequence(trace),
    )  # fmt: skip


def _counted(trace: Trace, rows: IntArray) -> list[Message]:
    names = trace.codes("name")
    counts = Counter(names.codes[rows].tolist()).most_common(_NAMED)
    return [message("{name}: {count}", name=names.values[code], count=count) for code, count in counts]


def _where(trace: Trace, rows: IntArray) -> Message:
    """Return the steps of the rows, or their time range within the recording if none is in a step."""
    numbers, start = np.unique(trace.ints("step")[rows]), trace.ints("start_ns")
    names = [str(number) for number in numbers[numbers >= 0].tolist()]
    if not names:
        first, last = (int(time - start.min()) for time in (start[rows].min(), trace.end_ns[rows].max()))
        return message("between {first:ns} and {last:ns} of the recording", first=first, last=last)
    named, rest = message("{names:and}", names=names), len(names) - _NAMED
    if rest > 1:
        named = message("{names:list} and {rest:count} more", names=names[:_NAMED], rest=rest)
    return plural("in step {names}", "in steps {names}", len(names), names=named)


def _cause(trace: Trace, records: LostRecords) -> Message:
    if records.implausible == len(records.lost):
        return message("the times of their device work are impossible")
    launched = trace.ints("launched_by")[trace.rows("kind", *schema.DEVICE_WORK)]
    launched = launched[launched != NO_ROW]
    if not len(launched):
        return message("the profiler did not record the activity of devices, or another profiler used them")
    if records.lost.max() < launched.min():
        return message("the profiler began to record devices late, or overwrote its first buffers")
    return message("the profiler lost buffers with activity of devices")


def _consequence(trace: Trace) -> Message | None:
    steps = np.count_nonzero(trace.host & trace.rows("kind", schema.STEP))
    if not steps:
        return message("; so how long devices are idle is unknown")
    incomplete = len(lost_records(trace).steps)
    if not incomplete:
        return None
    return message(
        "; {incomplete} of {steps} steps are incomplete, so how long devices are idle in them is unknown",
        incomplete=incomplete, steps=steps,
    )  # fmt: skip
