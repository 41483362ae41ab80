"""Rule 14: more threads compute than the machine has cores."""

from __future__ import annotations

from typing import Final

from perfkit_core.advice.facts import Facts
from perfkit_core.advice.model import Candidate, NotEvaluableError
from perfkit_core.advice.rules.host_numbers import recorded
from perfkit_core.advice.rules.phrases import counted
from perfkit_core.language import in_english, say
from perfkit_core.plugins.contracts import Rule
from perfkit_core.recording.host import CORES, PROCESSES, THREADS


def oversubscribed(facts: Facts) -> list[Candidate]:
    """Rule 14: threads × processes > cores."""
    cores, threads = recorded(facts, CORES), recorded(facts, THREADS)
    if cores is None or threads is None:
        raise NotEvaluableError(
            say(
                "threads and cores were not recorded: compare the threads of an operator (OMP_NUM_THREADS, or what the "
                "framework says) times the processes on the machine with its cores (nproc)"
            )
        )
    processes = recorded(facts, PROCESSES) or 1
    return [_fewer(cores, threads, processes)] if threads * processes > cores else []


def _fewer(cores: int, threads: int, processes: int) -> Candidate:
    each = max(cores // processes, 1)
    each_of = counted(threads, in_english("thread"), in_english("threads"))
    jobs = (
        say("{processes} processes of {each_of}", processes=processes, each_of=each_of)
        if processes > 1
        else say("operators of {each_of}", each_of=each_of)
    )
    return Candidate(
        say("{jobs} share {counted}", jobs=jobs, counted=counted(cores, in_english("core"), in_english("cores"))),
        evidence={"threads": threads, "processes": processes, "cores": cores, "proposed_threads": each},
        method="none",
        preconditions=(say("threads and cores were recorded in the process itself"),),
        risks=(say("what fewer threads save depends on what else runs on the machine: measure it"),),
        fill={"threads": str(each)},
    )


RULES: Final = (Rule("thread-oversubscription", 14, 1, "Use no more threads than cores", oversubscribed),)
