"""Rule 14: more threads compute than the machine has cores."""

from __future__ import annotations

from typing import Final

from perfkit_core.advice.facts import Facts
from perfkit_core.advice.model import Candidate, NotEvaluableError
from perfkit_core.advice.rules.host_numbers import recorded
from perfkit_core.advice.rules.phrases import counted
from perfkit_core.plugins.contracts import Rule
from perfkit_core.recording.host import CORES, PROCESSES, THREADS


def oversubscribed(facts: Facts) -> list[Candidate]:
    """Rule 14: threads × processes > cores."""
    cores, threads = recorded(facts, CORES), recorded(facts, THREADS)
    if cores is None or threads is None:
        raise NotEvaluableError(
            "threads and cores were not recorded: compare the threads of an operator (OMP_NUM_THREADS, or what the "
            "framework says) times the processes on the machine with its cores (nproc)"
        )
    processes = recorded(facts, PROCESSES) or 1
    return [_fewer(cores, threads, processes)] if threads * processes > cores else []


def _fewer(cores: int, threads: int, processes: int) -> Candidate:
    each = max(cores // processes, 1)
    each_of = counted(threads, "thread")
    jobs = f"{processes} processes of {each_of}" if processes > 1 else f"operators of {each_of}"
    return Candidate(
        f"{jobs} share {counted(cores, 'core')}",
        evidence={"threads": threads, "processes": processes, "cores": cores, "proposed_threads": each},
        method="none",
        preconditions=("threads and cores were recorded in the process itself",),
        risks=("what fewer threads save depends on what else runs on the machine: measure it",),
        fill={"threads": str(each)},
    )


RULES: Final = (Rule("thread-oversubscription", 14, 1, "Use no more threads than cores", oversubscribed),)
