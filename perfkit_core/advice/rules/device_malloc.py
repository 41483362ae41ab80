"""Rule 8, device-malloc: the driver still allocates and frees memory after the first step.
Detected: cudaMalloc, cudaFree and similar calls in steps after the first. In a recording without steps, they must
occur again and again, from the first to the last device work.
Predicted: the step time without these calls, because a caching allocator does not need them."""

from __future__ import annotations

import re
from typing import Final

import numpy as np

from perfkit_core.advice.operators import matching
from perfkit_core.advice.rule_input import Candidate, NotEvaluableError, RuleInput, listed
from perfkit_core.base.language.messages import message, plural
from perfkit_core.replay.transforms import Remove
from perfkit_core.trace.model.schema import DEVICE_WORK, KERNEL, RUNTIME, SYNC

ALLOCATES: Final = re.compile(
    r"^(cuda|hip|musa|xpu|acl(rt)?)_?(Ext)?(Malloc(?!Async|FromPool)|Free(?!Async)|Host(Alloc|Malloc|Free|Register))"
    r"|^cuMem(Alloc|Free|Create|Release|Map|Unmap|SetAccess|AddressReserve|AddressFree|Host(Alloc|Register))(?!Async)",
    re.IGNORECASE,
)
"""Calls that allocate or free device memory or pinned host memory. Asynchronous calls use a pool and do not count."""

_PARTS: Final = 4
_UNCACHED: Final = 0.1
"""If a step has at least this number of calls for each kernel, the allocator keeps no memory."""


def find(facts: RuleInput) -> list[Candidate]:
    facts.need_device()
    trace, start, step = facts.trace, facts.trace.ints("start_ns"), facts.trace.ints("step")
    if not trace.rows("kind", RUNTIME).any():
        raise NotEvaluableError(message("no runtime calls were recorded"))
    calls = trace.host & trace.rows("kind", RUNTIME, SYNC) & matching(trace, "name", ALLOCATES.search)
    rows = np.flatnonzero(calls & (facts.replay.first >= 0))
    ranks, steps = len(np.unique(facts.steps.rank)), None
    later = max(len(facts.steps) - ranks, ranks, 1)
    if facts.has_steps:
        if len(np.unique(facts.steps.number)) < 2:
            raise NotEvaluableError(message("only one step was recorded, so warm-up cannot be excluded"))
        rows = rows[step[rows] > int(facts.steps.number.min())]
        steps = len(np.unique(step[rows]))
        where = message("in {steps:count} of the {later:count} steps after the first", steps=steps, later=later)
        left_out = message("the first step does not count, because later steps may reuse the memory that it allocates")
    else:
        work = trace.rows("kind", *DEVICE_WORK)
        first, last = int(start[work].min()), int(trace.end_ns[work].max())
        rows = rows[(start[rows] > first) & (trace.end_ns[rows] < last)]
        if len(np.unique((start[rows] - first) * _PARTS // max(last - first, 1))) < _PARTS:
            return []  # memory is allocated at the start of the program, or once for a larger batch
        where = message("in all parts of the recording")
        left_out = message("such calls occur in each of {parts:count} equal parts of the recording", parts=_PARTS)
    dur = trace.ints("dur_ns")[rows]
    total = int(dur.sum())
    if not facts.exceeds(total / later, facts.thresholds.device_malloc_share):
        return []
    codes, counts = np.unique(trace.codes("name").codes[rows], return_counts=True)
    names = [trace.codes("name").values[code] for code in codes[np.argsort(-counts, kind="stable")]]
    return [Candidate(
        plural(
            "{n:count} call of {names} {where} takes {time}.",
            "{n:count} calls of {names} {where} take {time}.",
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
        vetoes=(message("asynchronous allocations, which the driver serves from a pool"),),
        words={"cache": "off" if len(rows) > _UNCACHED * max(int(trace.rows("kind", KERNEL).sum()), 1) else "on"},
        risks=(message("An allocator that caches more memory leaves less for other processes on the device."),),
    )]  # fmt: skip
