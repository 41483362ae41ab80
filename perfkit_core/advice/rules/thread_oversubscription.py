"""Rule 14, thread-oversubscription: more threads compute than the machine has cores.
Detected: the product of threads and processes exceeds the number of cores.
Predicted: for a single process, the step time if operators use as many threads as there are cores. Threads that wait
for each other occupy cores, so other work of the host becomes shorter, too. For several processes nothing, because the
saving depends on how they share the machine."""

from __future__ import annotations

from typing import Final

import numpy as np

from perfkit_core.advice.rule_input import Candidate, NotEvaluableError, RuleInput, assume
from perfkit_core.advice.rules.loader_workers import cores_text
from perfkit_core.base.language.messages import message, plural
from perfkit_core.replay.transforms import Quantity, Scale
from perfkit_core.trace.model.meta import CORES, PROCESSES, THREADS
from perfkit_core.trace.model.schema import STEP

_FEWER: Final = Quantity(
    0.3, 0.6, 0.95, message("estimate: threads of one operator wait for each other while some of them have no core")
)


def find(facts: RuleInput) -> list[Candidate]:
    cores, threads = facts.recorded_number(CORES), facts.recorded_number(THREADS)
    if cores is None or threads is None:
        raise NotEvaluableError(
            message("threads and cores were not recorded"),
            message(
                "multiply the threads of each process (OMP_NUM_THREADS) by the processes on the machine, and compare "
                "the result with the number of cores (nproc)"
            ),
        )
    processes = facts.recorded_number(PROCESSES) or 1
    if threads * processes <= cores:
        return []
    proposed = max(cores // processes, 1)
    counts = {"threads": plural("{n} thread", "{n} threads", threads), "cores": cores_text(cores)}
    what = message("Operators use {threads} on {cores}.", **counts)
    if processes > 1:
        what = message("On {cores}, each of {processes:count} processes uses {threads}.", processes=processes, **counts)
    rows = np.flatnonzero(facts.trace.rows("kind", STEP) & (facts.replay.first >= 0))
    return [Candidate(
        what,
        evidence={"threads": threads, "processes": processes, "cores": cores, "proposed_threads": proposed},
        rows=rows,
        method="none" if processes > 1 else "replay",
        transforms=() if processes > 1 else (Scale(rows, _FEWER, device=False),),
        assumptions=() if processes > 1 else assume(remaining_factor=_FEWER),
        preconditions=(message("the training process recorded its threads and cores"),),
        risks=(message("The saving depends on what else runs on the machine: measure it."),),
        fill={"threads": str(proposed)},
    )]  # fmt: skip
