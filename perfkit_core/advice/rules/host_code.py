"""Rule 53, host-code: the device waits for a function of the program, such as one that prepares, measures or logs.
Detected: in the account of the device, gaps of at least ``host_gap_ns`` in which the host runs neither an operator nor
a call of the device runtime. Gaps with the same innermost function, range or loader count together. A range that
launches kernels, such as that of the backward pass, is no work that could be done while the device computes.
Predicted: nothing, because the recording does not show whether this work can be avoided, or done while the device
works. The ceiling is the time in which the device waits."""

from __future__ import annotations

from typing import Final

import numpy as np

from perfkit_core.advice.decode_steps import is_served
from perfkit_core.advice.device_account import DeviceAccount, device_account
from perfkit_core.advice.operators import name_of
from perfkit_core.advice.rule_input import Candidate, RuleInput
from perfkit_core.base.algorithms import nesting
from perfkit_core.base.algorithms.arrays import NO_ROW, BoolArray, IntArray
from perfkit_core.base.language.messages import Text, message
from perfkit_core.causes.segments import HOST, WORDS
from perfkit_core.trace.model import schema
from perfkit_core.trace.model.trace import Trace
from perfkit_core.views.select import marked
from perfkit_core.views.user_code import LINE

_MOST: Final = 3
"""Maximum number of functions that are reported."""


def find(facts: RuleInput) -> list[Candidate]:
    facts.need_device()
    account = device_account(facts)
    if account is None or is_served(facts):
        return []
    trace = facts.trace
    at = _in_long_gaps(account, facts.thresholds.host_gap_ns)
    place = account.segments.event[at]
    loads = trace.rows("kind", schema.DATALOADER)[place]
    code = ~trace.rows("kind", schema.OPERATOR, schema.RUNTIME, schema.SYNC, schema.COMMUNICATION, schema.STEP)[place]
    ranges = trace.rows("kind", schema.ANNOTATION, schema.FORWARD, schema.BACKWARD, schema.OPTIMIZER)
    code &= ~(ranges & _launches_kernels(trace))[place]
    if facts.has_steps:  # rules 10 and 13 are about the loader
        code &= ~loads
    at, place = at[code], place[code]
    names = trace.codes("name").codes[place]
    start, end = account.segments.start, account.segments.end
    found = []
    for name in np.unique(names).tolist():
        here = at[names == name]
        held = account.within((start[here], end[here]))
        if facts.exceeds(held, facts.thresholds.host_gap_share):
            found.append((held, place[names == name], end[here] - start[here]))
    found.sort(key=lambda part: -part[0])
    return [_candidate(facts, held, rows, rows_ns) for held, rows, rows_ns in found[:_MOST]]


def _launches_kernels(trace: Trace) -> BoolArray:
    """Return the mask of the host events in which kernels are launched, shape (rows,)."""
    launches = trace.ints("launched_by")[trace.rows("kind", schema.KERNEL)]
    return nesting.holds(trace.ints("parent"), marked(trace, launches[launches != NO_ROW]))


def _in_long_gaps(account: DeviceAccount, least_ns: int) -> IntArray:
    """Return the segments of ``host`` with a recorded event, in gaps of the device of at least ``least_ns``."""
    parts = account.segments
    held = np.flatnonzero(parts.word == WORDS.index(HOST))
    gap = np.cumsum(np.append(True, parts.start[held[1:]] != parts.end[held[:-1]])[: len(held)]) - 1
    long = np.bincount(gap, parts.end[held] - parts.start[held])[gap] >= least_ns if len(held) else gap
    chosen: IntArray = held[long & (parts.event[held] != NO_ROW)] if len(held) else held
    return chosen


def _candidate(facts: RuleInput, held: float, rows: IntArray, rows_ns: IntArray) -> Candidate:
    trace, function = facts.trace, name_of(facts.trace, rows[0])
    loads = bool(trace.rows("kind", schema.DATALOADER)[rows].all())
    what = message(
        "The device waits for {time} while the host runs {function}{caller}.",
        time=facts.of_step(held),
        function=function,
        caller=_caller(facts, int(rows[rows_ns.argmax()])),
    )
    if loads:
        what = message(
            "The device waits for {time} while the training waits for its next batch ({function}).",
            time=facts.of_step(held),
            function=function,
        )
    return Candidate(
        what,
        evidence={**facts.part("held", held), "function": function, "gaps": len(rows)},
        rows=rows,
        rows_ns=rows_ns,
        method="none",
        ceiling_ns=round(held),
        preconditions=(message("the call that launches the next device work has not returned"),),
        fill={"function": function},
        words={"code": "loader" if loads else "function"},
    )  # fmt: skip


def _caller(facts: RuleInput, row: int) -> Text:
    """Return the nearest function around an event that lies in another package, with its line."""
    trace, python = facts.trace, facts.trace.rows("kind", schema.PYTHON)
    own = None
    while (row := int(trace.ints("parent")[row])) != NO_ROW:
        match = LINE.match(name_of(trace, row)) if python[row] else None
        if match is None:
            continue
        package = match["file"].split("/")[0]
        if own is not None and package != own:
            return message(", called by {frame}", frame=name_of(trace, row))
        own = own or package
    return ""
