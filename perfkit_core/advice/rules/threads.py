"""Rule 14: more threads compute than the machine has cores."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from perfkit_core.advice.facts import Facts
from perfkit_core.advice.model import Candidate, NotEvaluableError
from perfkit_core.plugins.contracts import Rule
from perfkit_core.recording.host import CORES, HOST, PROCESSES, THREADS

_NAMES: Final = {
    CORES: ("cores", "cpu_count", "cpu_cores"),
    THREADS: ("threads", "num_threads", "intra_op_threads", "omp_num_threads"),
    PROCESSES: ("processes", "local_world_size"),
}


def oversubscribed(facts: Facts) -> list[Candidate]:
    """Rule 14: threads × processes > cores."""
    cores, threads = _recorded(facts, CORES), _recorded(facts, THREADS)
    if cores is None or threads is None:
        raise NotEvaluableError(
            "threads and cores were not recorded: compare the threads of an operator (OMP_NUM_THREADS, or what the "
            "framework says) times the processes on the machine with its cores (nproc)"
        )
    processes = _recorded(facts, PROCESSES) or 1
    return [_fewer(facts, cores, threads, processes)] if threads * processes > cores else []


def _recorded(facts: Facts, what: str) -> int | None:
    """A number of the recording; None where it holds none."""
    meta = facts.trace.meta
    places: list[Mapping[str, Any]] = [meta.options, meta.extra]
    inner = meta.extra.get(HOST)
    if isinstance(inner, Mapping):
        places.insert(0, inner)
    for place in places:
        for name in _NAMES[what]:
            found = place.get(name)
            if isinstance(found, int) and not isinstance(found, bool) and found > 0:
                return found
    return None


def _fewer(facts: Facts, cores: int, threads: int, processes: int) -> Candidate:
    each = max(cores // processes, 1)
    jobs = f"{processes} processes of {threads} threads" if processes > 1 else f"operators of {threads} threads"
    return Candidate(
        f"{jobs} share {cores} core{'s' * (cores > 1)}",
        evidence={"threads": threads, "processes": processes, "cores": cores, "proposed_threads": each},
        method="none",
        preconditions=("threads and cores were recorded in the process itself",),
        risks=("what fewer threads save depends on what else runs on the machine: measure it",),
        fill={"threads": str(each)},
    )


RULES: Final = (Rule("thread-oversubscription", 14, 1, "Use no more threads than cores", oversubscribed),)
