"""Measure the memory and CPU time of the current process."""

from __future__ import annotations

import resource
import sys
from pathlib import Path

_STATUS, _CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def resident_bytes() -> int:
    """Return the resident memory, or the peak so far on systems without ``/proc``."""
    return _field("VmRSS") if _STATUS.exists() else peak_bytes()


def peak_bytes() -> int:
    """Return the peak resident memory since the start of the process, or since :func:`reset_peak`."""
    if _STATUS.exists():
        return _field("VmHWM")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def reset_peak() -> None:
    """Reset the peak resident memory, if the system allows this."""
    try:
        _CLEAR.write_text("5")
    except OSError:
        return


def cpu_seconds() -> float:
    """Return the user and system time of this process, all its threads, and all child processes that have ended."""
    mine, children = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return mine.ru_utime + mine.ru_stime + children.ru_utime + children.ru_stime


def _field(name: str) -> int:
    line = next(line for line in _STATUS.read_text().splitlines() if line.startswith(f"{name}:"))
    return int(line.split()[1]) * 1024
