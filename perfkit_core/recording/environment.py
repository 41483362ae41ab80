"""How many threads, of how many processes, on how many cores? Kept by a handler of the process that it records.

Python's garbage collector, kept out of the way of what makes millions of objects.
"""

from __future__ import annotations

import gc
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

from perfkit_core.system.machine import usable_cpus

HOST: Final = "host"
"""Key of ``Trace.meta.extra``."""
CORES, THREADS, PROCESSES = "cores", "threads", "processes"
"""Cores that the process may use, threads that one operator of it uses, and processes of the job on the machine."""
_QUOTA: Final = Path("/sys/fs/cgroup/cpu.max")
_JOB: Final = ("LOCAL_WORLD_SIZE", "PADDLE_LOCAL_SIZE")
"""Environment variables in which launchers say how many processes they started on the machine."""


def host(threads: int | None) -> dict[str, dict[str, int]]:
    """The numbers that are known, under :data:`HOST`. ``threads``: what the framework says, None where it does not."""
    processes = next((int(text) for name in _JOB if (text := os.environ.get(name, "")).isdigit()), None)
    known = {CORES: cores(), THREADS: threads, PROCESSES: processes}
    return {HOST: {name: number for name, number in known.items() if number}}


def cores(quota: Path = _QUOTA) -> int:
    """Logical processors that the process may run on, or what a container lets it use of them, rounded up."""
    usable = len(usable_cpus())
    try:
        allowed, period = quota.read_text(encoding="ascii").split()
        return min(usable, max(math.ceil(int(allowed) / int(period)), 1))
    except (OSError, ValueError, ZeroDivisionError):  # no such limit, or one of another system
        return usable


Result = TypeVar("Result")


def without_gc(action: Callable[[], Result]) -> Result:
    """Run with the garbage collector off: it would scan the millions of objects that an extraction makes."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        return action()
    finally:
        if was_on:
            gc.enable()
