"""Where a recorded process runs: its rank in the job, and its threads, processes and cores."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from perfkit_core.system.machine import usable_cpus

HOST: Final = "host"
"""Key of ``Trace.meta.extra``."""
CORES, THREADS, PROCESSES = "cores", "threads", "processes"
"""Cores that the process may use, threads that one operator of it uses, and processes of the job on the machine."""
_QUOTA: Final = Path("/sys/fs/cgroup/cpu.max")
_LOCAL_PROCESSES: Final = ("LOCAL_WORLD_SIZE", "PADDLE_LOCAL_SIZE")
"""Environment variables in which launchers say how many processes they started on the machine."""

Variables = tuple[str, str]
"""Names of the environment variables in which a launcher gives a process its rank, and the world size."""

_LAUNCHERS: Final[tuple[Variables, ...]] = (
    ("RANK", "WORLD_SIZE"),
    ("PADDLE_TRAINER_ID", "PADDLE_TRAINERS_NUM"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("SLURM_PROCID", "SLURM_NTASKS"),
)


@dataclass(frozen=True, slots=True)
class Place:
    """Rank and world size of this process in a distributed job; None where the job does not say."""

    rank: int | None
    world_size: int | None


def environment_place(*first: Variables) -> Place:
    """Return rank and world size from one launcher's environment variables; those of ``first`` are read first.

    A launcher that gives both is preferred to one that gives the rank alone: launchers run one another, and the rank of
    one does not belong to the world size of another.
    """
    places = [Place(_integer(rank), _integer(size)) for rank, size in (*first, *_LAUNCHERS)]
    ranked = [place for place in places if place.rank is not None]
    return next((place for place in ranked if place.world_size is not None), next(iter(ranked), Place(None, None)))


def _integer(variable: str) -> int | None:
    value = os.environ.get(variable, "")
    return int(value) if value.isdecimal() else None


def host(threads: int | None) -> dict[str, dict[str, int]]:
    """Return the numbers that are known, under :data:`HOST`. ``threads``: the framework's number, None if unknown."""
    processes = next((int(text) for name in _LOCAL_PROCESSES if (text := os.environ.get(name, "")).isdigit()), None)
    numbers = {CORES: cores(), THREADS: threads, PROCESSES: processes}
    return {HOST: {name: number for name, number in numbers.items() if number}}


def cores(quota: Path = _QUOTA) -> int:
    """Return the logical processors that the process may run on, or the container's limit on them, rounded up."""
    usable = len(usable_cpus())
    try:
        allowed, period = quota.read_text(encoding="ascii").split()
        return min(usable, max(math.ceil(int(allowed) / int(period)), 1))
    except (OSError, ValueError, ZeroDivisionError):  # no such limit, or one of another system
        return usable
