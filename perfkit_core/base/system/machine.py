"""The machine of this process: its processor, its usable cores, the configured numbers of threads, and its display."""

from __future__ import annotations

import hashlib
import os
import platform
import socket
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

THREADS: Final = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "CPU_NUM", "CUDA_VISIBLE_DEVICES")


@dataclass(frozen=True, slots=True)
class Machine:
    """The machine of this process, as far as it influences measurements."""

    cpu: str  # model name of the processor
    cpus: tuple[int, ...]  # numbers of the usable logical processors
    threads: Mapping[str, str]  # environment variable in THREADS (OMP_NUM_THREADS, …) → its value


def this_machine() -> Machine:
    return Machine(cpu_model(), usable_cpus(), {name: os.environ[name] for name in THREADS if name in os.environ})


def host_digest(hostname: str | None = None) -> str:
    """Return a short text that is different for each host name, by default that of this machine. It can stand for the
    name in files that are shared. Someone who guesses the name can check it."""
    return f"host{hashlib.sha256((hostname or socket.gethostname()).encode('utf-8', 'replace')).hexdigest()[:10]}"


def is_this_host(hostname: str | None) -> bool:
    """Return whether a recorded host name, or its digest, is that of this machine."""
    return hostname is not None and hostname in (socket.gethostname(), host_digest())


def cpu_model() -> str:
    return _cpu_info("model name", "Hardware") or platform.processor() or platform.machine() or "unknown"


def processor_flags() -> str:
    """Return the flags of the first processor, separated by spaces, or "" if they are unknown."""
    return _cpu_info("flags", "Features")


def _cpu_info(*keys: str) -> str:
    """Return the first value that Linux states for one of the keys, or "" if there is none."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    named = (line.partition(":")[2].strip() for line in lines if line.startswith(keys))
    return next(filter(None, named), "")


def processor_ticks() -> tuple[int, int]:
    """Return how long the machine's processors have been busy, and how long they have existed, in ticks, summed over
    the processors. Both are 0 if this is unknown."""
    try:
        _, *ticks = Path("/proc/stat").read_text(encoding="ascii").partition("\n")[0].split()
        user, nice, system, idle, iowait, *irq_and_steal = map(int, ticks[:8])  # the rest is contained in user and nice
    except (OSError, ValueError):
        return 0, 0
    busy = user + nice + system + sum(irq_and_steal)
    return busy, busy + idle + iowait


def usable_cpus() -> tuple[int, ...]:
    """Return the numbers of the logical processors that this process may use; all processors if this is unknown."""
    if hasattr(os, "sched_getaffinity"):
        return tuple(sorted(os.sched_getaffinity(0)))
    return tuple(range(os.cpu_count() or 1))


def has_display() -> bool:
    """Return whether a browser can be shown: $BROWSER is set, or this is no SSH session and there is a display."""
    if os.environ.get("BROWSER"):
        return True
    if os.environ.get("SSH_CONNECTION"):
        return False
    return sys.platform in ("win32", "darwin") or any(map(os.environ.get, ("DISPLAY", "WAYLAND_DISPLAY")))
