"""Environment of a recorded process: its rank, the world size, and the numbers of threads, processes and cores."""

from __future__ import annotations

import math
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from perfkit_core.base.system.machine import processor_flags, usable_cpus
from perfkit_core.base.system.outside_text import whole_number
from perfkit_core.trace.model.meta import CORES, DTYPE, HOST, INSTRUCTIONS, PROCESSES, THREADS

_REDUCED: Final = re.compile(r"\b(amx_bf16|amx_fp16|avx512_bf16|avx512_fp16|bf16|i8mm|fphp|asimdhp)\b")
_QUOTA: Final = Path("/sys/fs/cgroup/cpu.max")
_LOCAL_PROCESSES: Final = ("LOCAL_WORLD_SIZE", "PADDLE_LOCAL_SIZE")
"""Environment variables in which launchers store the number of processes on this machine."""
_LAUNCHERS: Final = (
    ("RANK", "WORLD_SIZE"),
    ("PADDLE_TRAINER_ID", "PADDLE_TRAINERS_NUM"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("SLURM_PROCID", "SLURM_NTASKS"),
)


@dataclass(frozen=True, slots=True)
class ProcessRank:
    """Rank and world size of this process in a distributed job. A value is None if it is unknown."""

    rank: int | None
    world_size: int | None


def environment_rank(*first: tuple[str, str]) -> ProcessRank:
    """Return rank and world size from the environment variables of one launcher: the first that sets both variables, or
    else the first that sets the rank. Variables of several launchers are not combined, because launchers can be nested.
    The pairs of variables in ``first`` are tried before those of the known launchers."""
    jobs = [ProcessRank(_integer(rank), _integer(size)) for rank, size in (*first, *_LAUNCHERS)]
    ranked = [job for job in jobs if job.rank is not None]
    return next((job for job in ranked if job.world_size is not None), next(iter(ranked), ProcessRank(None, None)))


def _integer(variable: str) -> int | None:
    return whole_number(os.environ.get(variable, ""))


def host(threads: int | None, dtype: str | None = None) -> dict[str, Any]:
    """Return the entries :data:`HOST` and :data:`DTYPE` of ``TraceMeta.extra``, without what is unknown. ``threads`` is
    the framework's number of threads per operator, and ``dtype`` its default floating-point type."""
    processes = next((number for number in map(_integer, _LOCAL_PROCESSES) if number is not None), None)
    numbers = {CORES: cores(), THREADS: threads, PROCESSES: processes}
    entries: dict[str, Any] = {name: number for name, number in numbers.items() if number}
    flags = processor_flags()
    if flags:
        entries[INSTRUCTIONS] = sorted(set(_REDUCED.findall(flags)))
    return {HOST: entries, **({DTYPE: dtype.rpartition(".")[2]} if dtype else {})}


def cores(quota: Path = _QUOTA) -> int:
    """Return the number of logical processors that the process may use. A container's quota is rounded up."""
    usable = len(usable_cpus())
    try:
        allowed, period = quota.read_text(encoding="ascii").split()
        return min(usable, max(math.ceil(int(allowed) / int(period)), 1))
    except (OSError, ValueError, ZeroDivisionError):  # there is no quota, or no cgroup v2
        return usable
