"""Rule 8: device memory is still allocated and freed by the driver when the training should have settled."""

from __future__ import annotations

from typing import Final

import numpy as np

from perfkit_core.advice.facts import Facts
from perfkit_core.advice.model import Candidate, NotEvaluableError
from perfkit_core.advice.rules import calls
from perfkit_core.advice.rules.phrases import part_of_step, times, verb
from perfkit_core.advice.wording import both, several
from perfkit_core.language import say
from perfkit_core.plugins.contracts import Rule
from perfkit_core.replay.edits.removal import Remove
from perfkit_core.schema import DEVICE_WORK, RUNTIME, SYNC
from perfkit_core.trace import IntArray

_ALLOCATES: Final = (
    r"^(cuda|hip|musa|xpu|acl(rt)?)_?(Ext)?(Malloc(?!Async|FromPool)|Free(?!Async)|Host(Alloc|Malloc|Free|Register))"
    r"|^cuMem(Alloc|Free|Create|Release|Map|Unmap|SetAccess|AddressReserve|AddressFree|Host(Alloc|Register))(?!Async)"
)
"""Of host memory that devices read, too: allocating it takes as long. The asynchronous ones take from a pool."""


_NAMED: Final = 3


def device_malloc(facts: Facts) -> list[Candidate]:
    """Rule 8: cudaMalloc, cudaFree and their like in steps after the first; in the second half of a recording without
    steps."""
    facts.need_device()
    rows = _late(facts)
    ranks = len(np.unique(facts.steps.rank))
    later = max(len(facts.steps) - ranks, ranks, 1)
    total = int(facts.trace.ints("dur_ns")[rows].sum())
    if total / later <= facts.thresholds.device_malloc_share * facts.step_ns:
        return []
    return [_settled(facts, rows, total, later)]


def _late(facts: Facts) -> IntArray:
    """Calls of the driver that allocate or free, when the training should have settled."""
    trace = facts.trace
    if not trace.rows("kind", RUNTIME).any():
        raise NotEvaluableError(say("no calls of the device's runtime were recorded"))
    mask = trace.host & trace.rows("kind", RUNTIME, SYNC) & calls.named(trace, _ALLOCATES) & (facts.replay.first >= 0)
    rows = np.flatnonzero(mask)
    start = trace.ints("start_ns")
    if not facts.has_steps:
        work = trace.rows("kind", *DEVICE_WORK)
        if not work.any():
            raise NotEvaluableError(
                say("neither steps nor work of a device were recorded: when it had settled is not known")
            )
        middle = (int(start[work].min()) + int(trace.end_ns[work].max())) // 2
        return rows[start[rows] > middle]
    if len(np.unique(facts.steps.number)) < 2:
        raise NotEvaluableError(say("only one step was recorded: nothing tells whether the training had settled"))
    return rows[trace.ints("step")[rows] > int(facts.steps.number.min())]


def _settled(facts: Facts, rows: IntArray, total: int, later: int) -> Candidate:
    trace = facts.trace
    codes, counts = np.unique(trace.codes("name").codes[rows], return_counts=True)
    names = [trace.codes("name").values[code] for code in codes[np.argsort(-counts, kind="stable")]]
    steps = len(np.unique(trace.ints("step")[rows]))
    where = (
        say("in {steps} of the {later} steps after the first", steps=steps, later=later)
        if facts.has_steps
        else say("in the second half of the time in which the device works")
    )
    left_out = (
        say("first recorded step") if facts.has_steps else say("first half of the time in which the device works")
    )
    return Candidate(
        say(
            "{names} {verb} called {times} {where}: {part}",
            names=both(names) if len(names) <= _NAMED else several(names, _NAMED),
            verb=verb(len(names), "is", "are"),
            times=times(len(rows)),
            where=where,
            part=part_of_step(facts, total / later),
        ),
        evidence={
            "calls": len(rows), "calls_ns": total, "calls_of_a_step_ns": total // later, "step_ns": facts.step_ns,
            "steps_with_calls": steps if facts.has_steps else None,
        },
        rows=rows,
        edits=(Remove(rows, below=False),),
        ceiling_ns=calls.without(facts, calls.per_step(facts, rows, trace.ints("dur_ns")[rows])),
        preconditions=(say(
            "the {left_out} is left out: it may allocate what is used again from then on",
            left_out=left_out,
        ),),
        vetoes=(say("asynchronous allocations come from a pool of the driver and do not count"),),
        risks=(say("an allocator that keeps more memory leaves less for others on the device"),),
    )  # fmt: skip


RULES: Final = (Rule("device-malloc", 8, 1, "Keep device memory allocated", device_malloc),)
