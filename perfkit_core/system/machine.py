"""On which machine is this measured? Its processor, the cores that may be used, the threads that are asked for."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

THREADS: Final = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "CPU_NUM", "CUDA_VISIBLE_DEVICES")
"""Environment variables that decide how many threads and which devices a training has."""


@dataclass(frozen=True, slots=True)
class Machine:
    """``cpu`` is the model; ``cpus`` the numbers of those that this process may use; ``threads`` what is set of
    :data:`THREADS`."""

    cpu: str
    cpus: tuple[int, ...]
    threads: Mapping[str, str]


def this_machine() -> Machine:
    """The machine and what this process may use of it."""
    return Machine(cpu_model(), usable_cpus(), {name: os.environ[name] for name in THREADS if name in os.environ})


def cpu_model() -> str:
    """The processor as it names itself."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    named = [line.partition(":")[2].strip() for line in lines if line.startswith(("model name", "Hardware"))]
    return next(filter(None, named), "") or platform.processor() or platform.machine() or "unknown"


def usable_cpus() -> tuple[int, ...]:
    """Numbers of the logical processors that this process may run on; all where the system does not tell."""
    if hasattr(os, "sched_getaffinity"):
        return tuple(sorted(os.sched_getaffinity(0)))
    return tuple(range(os.cpu_count() or 1))
