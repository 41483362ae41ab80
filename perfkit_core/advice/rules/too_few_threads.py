"""Rule 45, too-few-threads: operators leave cores idle.
Detected: fewer threads than cores, and operators that are long enough to be divided among threads.
Predicted: the step time if all cores share the work of these operators."""

from __future__ import annotations

import numpy as np

from perfkit_core.advice.operators import operator_order
from perfkit_core.advice.rule_input import Candidate, NotEvaluableError, RuleInput, assume
from perfkit_core.advice.rules.loader_workers import cores_text
from perfkit_core.base.language.messages import message, plural
from perfkit_core.replay.transforms import Quantity, Scale
from perfkit_core.trace.model.meta import CORES, THREADS

_DIVIDED: tuple[float, float, float] = (0.95, 0.7, 0.15)
"""Share of the work that all threads divide: in the best, a likely and the worst case."""


def find(facts: RuleInput) -> list[Candidate]:
    cores, threads = facts.cores, facts.recorded_number(THREADS)
    if cores is None or facts.recorded_number(CORES) is None or threads is None:
        raise NotEvaluableError(message("threads and cores were not recorded"))
    if threads >= cores or facts.on_device:
        return []
    trace, order, limits = facts.trace, operator_order(facts.trace), facts.thresholds
    rows = order.row[(facts.in_steps & (trace.ints("dur_ns") >= limits.divided_ns))[order.row]]
    spent = facts.mean_ns(rows)
    if not facts.exceeds(spent, limits.divided_share):
        return []
    faster = threads / cores
    low, mid, high = (1 - part * (1 - faster) for part in _DIVIDED)
    factor = Quantity(low, mid, high, message("estimate: a part of an operator's work is divided among the threads"))
    count = plural("{n} thread", "{n} threads", threads)
    return [Candidate(
        message(
            "The training uses {threads} on {cores}. Operators of at least {least:ns} take {time}.",
            threads=count, cores=cores_text(cores), least=limits.divided_ns, time=facts.of_step(spent),
        ),
        evidence={"threads": threads, "cores": cores, "operators": len(rows), **facts.part("long", spent)},
        rows=rows,
        transforms=(Scale(rows, factor),),
        ceiling_ns=round(spent * (1 - faster)),
        preconditions=(message("the training process recorded its threads and cores"),),
        vetoes=(message("operators that are too short to be divided"),),
        assumptions=assume(remaining_factor=factor),
        risks=(message("Loader workers and other processes need cores, too."),),
        fill={"threads": str(int(np.ceil(cores)))},
    )]  # fmt: skip
