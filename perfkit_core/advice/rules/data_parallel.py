"""Rule 32: one process drives several devices and copies the model to them."""

from __future__ import annotations

import re
from typing import Final

import numpy as np

from perfkit_core import nesting
from perfkit_core.advice.facts import Facts
from perfkit_core.advice.model import Candidate
from perfkit_core.analyses.select import marked
from perfkit_core.analyses.span import ranks
from perfkit_core.language import say
from perfkit_core.plugins.contracts import Rule
from perfkit_core.schema import KERNEL
from perfkit_core.trace import BoolArray, Trace

_REPLICAS: Final = re.compile(
    r"(?<!\w)DataParallel\.forward|broadcast_coalesced|reduce_?add_?coalesced|(?<!\w)replicate(?!\w)"
    r"|ParallelExecutor|SSAGraphExecutor",
    re.IGNORECASE,
)
"""A model copied to several devices by one process, in the words of either framework (Paddle until 2.x)."""


def replicas(facts: Facts) -> list[Candidate]:
    """Rule 32: one process copies the model to several devices in each step."""
    trace = facts.trace
    facts.need_device()
    rows = np.flatnonzero(_named_replicas(trace))
    rank = trace.ints("rank")
    devices = {one: np.unique(trace.codes("device").codes[_kernels(trace) & (rank == one)]) for one in ranks(trace)}
    rows = rows[[len(devices[one]) > 1 for one in rank[rows]]]
    if not len(rows):
        return []
    count = max(len(devices[one]) for one in np.unique(rank[rows]))
    chosen = marked(trace, rows)
    calls = np.flatnonzero(chosen & ~nesting.lies_in(trace.ints("parent"), chosen))
    time = round(facts.per_step(int(trace.ints("dur_ns")[calls].sum())))
    return [
        Candidate(
            say("one process drives {count} devices and copies the model to them in every step", count=count),
            evidence={"devices": count, "replication_calls": len(calls), "in_calls_ns": time, "step_ns": facts.step_ns},
            rows=calls,
            method="none",
            preconditions=(
                say("kernels run on several devices of one process"),
                say("the model is replicated, not split"),
            ),
            risks=(say("each process then has a batch of its own: divide the batch size by the number of devices"),),
        )
    ]


def _named_replicas(trace: Trace) -> BoolArray:
    names = trace.codes("name")
    known = np.array([bool(_REPLICAS.search(name)) for name in names.values], np.bool_)
    found: BoolArray = trace.host & names.lookup(known, False)
    return found


def _kernels(trace: Trace) -> BoolArray:
    return ~trace.host & trace.rows("kind", KERNEL)


RULES: Final = (Rule("data-parallel", 32, 1, "Give each device a process of its own", replicas),)
