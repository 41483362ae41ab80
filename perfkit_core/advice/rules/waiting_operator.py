"""Rule 9, waiting-operator: an operator spends most of its time waiting, so its time is not its cost.
Detected: operators whose longest call is more than ``waiting_ratio`` times as long as their shortest call, if a device
does other work during the long calls.
Predicted: nothing, because the awaited work is the cause, not the operator."""

from __future__ import annotations

import re
from typing import Final

import numpy as np

from perfkit_core.advice.operators import name_of, operators, within
from perfkit_core.advice.rule_input import Candidate, RuleInput
from perfkit_core.base.algorithms import arrays, groupby, intervals, nesting
from perfkit_core.base.algorithms.arrays import filled
from perfkit_core.base.language.messages import message
from perfkit_core.trace.model.schema import COMMUNICATION, DEVICE_WORK, OPERATOR, RUNTIME, SYNC

_CLOCK_NS: Final = 1_000
"""Resolution of the coarsest clocks in recordings. Shorter calls may have the recorded duration 0."""
_LONG_PER_SHORTEST: Final = 10
_BLOCKED: Final = 0.5
"""An operator waits in the device runtime if runtime calls take at least this share of its time."""


def find(facts: RuleInput) -> list[Candidate]:
    """Return advice on the operator that waits longest for a device in its long calls: what it waits for is one cause,
    whichever operators wait."""
    facts.need_device()
    trace, limits = facts.trace, facts.thresholds
    rows = np.flatnonzero(operators(trace) & facts.in_steps)
    names, own_ns = trace.codes("name"), filled(len(trace), 0)
    # own_ns: the time of each operator less the time of operators inside it; its own runtime calls are included
    nearest = nesting.nearest_on_path(trace.ints("parent"), trace.host & trace.rows("kind", OPERATOR, COMMUNICATION))
    inside = np.flatnonzero(trace.host & (nearest >= 0))
    np.add.at(own_ns, nearest[inside], np.maximum(trace.ints("self_ns")[inside], 0))
    call_ns = own_ns[rows]
    code, first = groupby.by_appearance(names.codes[rows].astype(np.int64), len(names.values) + 1)
    shortest, longest = groupby.extremes(code, len(first), call_ns)
    usual = np.maximum(shortest, _CLOCK_NS)
    long = call_ns > _LONG_PER_SHORTEST * usual[code]
    total = groupby.sums(code, len(first), np.where(long, call_ns, 0))
    least_ns = limits.waiting_share * facts.step_ns * max(len(facts.steps), 1)
    candidates = []
    for group in np.flatnonzero((longest > limits.waiting_ratio * usual) & (total > least_ns)):
        calls = rows[(code == group) & long]
        candidates += _waiting(facts, calls, own_ns[calls], int(shortest[group]))
    return sorted(candidates, key=lambda candidate: -int(candidate.evidence["call_ns"]))[:1]


def _waiting(facts: RuleInput, calls: arrays.IntArray, own_ns: arrays.IntArray, shortest_ns: int) -> list[Candidate]:
    """Return a list with advice on an operator if its long calls wait, else an empty list.

    Calls wait if a device does other work during them, and if runtime calls take most of their time. The second
    condition excludes operators that compute on the host. It is dropped if no runtime calls were recorded."""
    trace, dur = facts.trace, facts.trace.ints("dur_ns")
    start, end, names = trace.ints("start_ns"), trace.end_ns, trace.codes("name")
    inside, runtime = trace.host & within(trace, calls), trace.host & trace.rows("kind", RUNTIME, SYNC)
    # covered: time of the calls in which a device does other work; by_name: time of this work, for each of its names
    covered, by_name = 0, np.zeros(len(names.values), np.int64)
    own_work = (trace.ints("launched_by") >= 0) & inside[trace.ints("launched_by")]
    other_work = np.flatnonzero(trace.rows("kind", *DEVICE_WORK) & ~trace.host & ~own_work)
    rank = trace.ints("rank")
    for number in np.unique(rank[calls]):  # clocks of ranks differ
        mine, work = calls[rank[calls] == number], other_work[rank[other_work] == number]
        covered += int(intervals.covered_ns(intervals.union_of(work, start, end), start[mine], end[mine]).sum())
        of_work = intervals.covered_ns(intervals.union_of(mine, start, end), start[work], end[work])
        np.add.at(by_name, names.codes[work], of_work)
    overlap = covered / max(int(dur[calls].sum()), 1)
    blocked = not runtime.any() or int(dur[runtime & inside].sum()) >= _BLOCKED * int(own_ns.sum())
    if overlap < facts.thresholds.waiting_overlap or not blocked:
        return []
    name, work_name = name_of(trace, calls[0]), names.values[int(by_name.argmax())]
    kernel = re.split(r"[<(]", work_name.removeprefix("void "))[0].strip() or work_name  # without template arguments
    cause = message("for a copy or for space in the launch queue, while the device runs {kernel}", kernel=kernel)
    syncs = np.flatnonzero(inside & trace.rows("kind", SYNC))
    if len(syncs):
        call = name_of(trace, syncs[np.argmax(dur[syncs])])
        cause = message("in {call}, while the device runs {kernel}", call=call, kernel=kernel)
    spent, waited = facts.per_step(int(own_ns.sum())), facts.per_step(int(facts.waiting_ns[inside].sum()))
    return [Candidate(
        message(
            "{operator} takes {time} but mostly waits {cause}. Shorten the awaited device work, not the operator.",
            operator=name, time=facts.of_step(spent), cause=cause,
        ),
        evidence={
            "operator": name, "long_calls": len(calls), "longest_ns": int(own_ns.max()), "shortest_ns": shortest_ns,
            "call_ns": round(spent), "waiting_ns": round(waited), "device_overlap_ratio": round(overlap, 3),
            "waits_for": work_name, "step_ns": facts.step_ns,
        },
        rows=calls,
        method="none",
        ceiling_ns=0,
        preconditions=(
            message("some calls take far longer than the shortest call"),
            message("a device does other work during the long calls"),
        ),
        risks=(message("The time of this operator is not a possible saving."),),
        fill={"operator": name, "work": work_name},
    )]  # fmt: skip
