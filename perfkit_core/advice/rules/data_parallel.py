"""Rule 32, data-parallel: one process drives several devices and copies the model to all of them in every step.
Detected: events that replicate a model, in a process whose kernels run on several devices.
Predicted: nothing, because one process per device changes the whole program."""

from __future__ import annotations

import re
from typing import Final

import numpy as np

from perfkit_core.advice.operators import kernels, matching, outermost
from perfkit_core.advice.rule_input import Candidate, RuleInput
from perfkit_core.base.language.messages import message
from perfkit_core.views.select import marked, ranks

_REPLICAS: Final = re.compile(
    r"(?<!\w)DataParallel\.forward|broadcast_coalesced|reduce_?add_?coalesced|(?<!\w)replicate(?!\w)"
    r"|ParallelExecutor|SSAGraphExecutor",
    re.IGNORECASE,
)
"""Names of events that copy a model to several devices: from PyTorch, and from Paddle 2."""


def find(facts: RuleInput) -> list[Candidate]:
    facts.need_device()
    trace, rank, work = facts.trace, facts.trace.ints("rank"), kernels(facts.trace)
    codes = trace.codes("device").codes[work]
    devices = {number: len(np.unique(codes[rank[work] == number])) for number in ranks(trace)}
    rows = np.flatnonzero(trace.host & matching(trace, "name", _REPLICAS.search))
    rows = rows[[devices[number] > 1 for number in rank[rows]]]
    if not len(rows):
        return []
    count = max(devices[number] for number in np.unique(rank[rows]))
    calls = outermost(trace, marked(trace, rows))
    return [Candidate(
        message("One process drives {count} devices and copies the model to them in every step.", count=count),
        evidence={
            "devices": count, "replication_calls": len(calls), "in_calls_ns": round(facts.mean_ns(calls)),
            "step_ns": facts.step_ns,
        },
        rows=calls,
        method="none",
        preconditions=(
            message("kernels of one process run on several devices"), message("the model is replicated, not split"),
        ),
        risks=(message("Each process loads a separate batch: divide the batch size by the number of devices."),),
    )]  # fmt: skip
