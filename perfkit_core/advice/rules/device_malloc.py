"""Rule 8, device-malloc: the driver still allocates and frees memory after the first step. Condition: cudaMalloc,
cudaFree and similar in steps after the first; without steps in the second half of the device's work. Transform: the
calls go, because a caching allocator needs none."""

from __future__ import annotations

import re
from typing import Final

import numpy as np

from perfkit_core.advice.facts import Candidate, Facts, NotEvaluableError, listed
from perfkit_core.advice.operators import matching
from perfkit_core.algorithms.arrays import IntArray
from perfkit_core.language.messages import message, plural
from perfkit_core.model.schema import DEVICE_WORK, RUNTIME, SYNC
from perfkit_core.replay.transforms import Remove

_ALLOCATES: Final = re.compile(
    r"^(cuda|hip|musa|xpu|acl(rt)?)_?(Ext)?(Malloc(?!Async|FromPool)|Free(?!Async)|Host(Alloc|Malloc|Free|Register))"
    r"|^cuMem(Alloc|Free|Create|Release|Map|Unmap|SetAccess|AddressReserve|AddressFree|Host(Alloc|Register))(?!Async)",
    re.IGNORECASE,
)
"""Calls for device memory, and for pinned host memory, which take as long. Asynchronous ones use a pool."""


def find(facts: Facts) -> list[Candidate]:
    facts.need_device()
    trace, rows = facts.trace, _late_calls(facts)
    ranks = len(np.unique(facts.steps.rank))
    later = max(len(facts.steps) - ranks, ranks, 1)
    where, steps = message("in the second half of the time in which the device is active"), None
    left_out = message(
        "the first half of the time in which the device is active is left out, as memory allocated in it may be reused "
        "later"
    )
    if facts.has_steps:
        steps = len(np.unique(trace.ints("step")[rows]))
        where = message("in {steps:count} of the {later:count} steps after the first", steps=steps, later=later)
        left_out = message("the first recorded step is left out, as memory allocated in it may be reused later")
    dur = trace.ints("dur_ns")[rows]
    total = int(dur.sum())
    if not facts.exceeds(total / later, facts.thresholds.device_malloc_share):
        return []
    codes, counts = np.unique(trace.codes("name").codes[rows], return_counts=True)
    names = [trace.codes("name").values[code] for code in codes[np.argsort(-counts, kind="stable")]]
    return [Candidate(
        plural(
            "{n:count} call of {names} {where}: {time}.",
            "{n:count} calls of {names} {where}: {time}.",
            len(rows), names=listed(names), where=where, time=facts.of_step(total / later),
        ),
        evidence={
            "calls": len(rows), "calls_ns": total, "calls_of_a_step_ns": total // later, "step_ns": facts.step_ns,
            "steps_with_calls": steps,
        },
        rows=rows,
        transforms=(Remove(rows, below=False),),
        ceiling_ns=facts.ceiling_ns(facts.totals(rows, dur)),
        preconditions=(left_out,),
        vetoes=(message("asynchronous allocations, which come from a pool of the driver"),),
        risks=(message("An allocator that keeps more memory leaves less for other processes on the device."),),
    )]  # fmt: skip


def _late_calls(facts: Facts) -> IntArray:
    trace, start = facts.trace, facts.trace.ints("start_ns")
    if not trace.rows("kind", RUNTIME).any():
        raise NotEvaluableError(message("no calls of the device runtime were recorded"))
    calls = trace.host & trace.rows("kind", RUNTIME, SYNC) & matching(trace, "name", _ALLOCATES.search)
    rows = np.flatnonzero(calls & (facts.replay.first >= 0))
    if not facts.has_steps:
        work = trace.rows("kind", *DEVICE_WORK)
        if not work.any():
            raise NotEvaluableError(
                message("neither steps nor device work were recorded, so the end of warm-up is unknown")
            )
        return rows[start[rows] > (int(start[work].min()) + int(trace.end_ns[work].max())) // 2]
    if len(np.unique(facts.steps.number)) < 2:
        raise NotEvaluableError(message("only one step was recorded, so warm-up cannot be excluded"))
    return rows[trace.ints("step")[rows] > int(facts.steps.number.min())]
