"""The limit of the memory that perfkit may use. Code calls :func:`require` before it allocates much memory.

The limit counts resident memory. A limit of the address space (``ulimit -v``) would also count memory that is reserved
but not used, such as that of libraries. Recordings of a live process are never limited, because they would be lost.
"""

from __future__ import annotations

import mmap
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from perfkit_core.errors import UsageError

ENVIRONMENT: Final = "PERFKIT_MAX_MEMORY"
"""Environment variable with the limit, such as ``8 GiB``."""
_CGROUP: Final = Path("/sys/fs/cgroup")

_limit: float = float("inf")


@contextmanager
def limited(most: float) -> Iterator[None]:
    """Limit the resident memory of this process to ``most`` bytes, in all its threads."""
    global _limit
    before, _limit = _limit, most
    try:
        yield
    finally:
        _limit = before


def is_limited() -> bool:
    return _limit != float("inf")


def require(size: float, purpose: str) -> None:
    """Raise UsageError if the process would exceed its limit with ``size`` more bytes. Takes 10 µs, or less if there is
    no limit."""
    if not is_limited():
        return
    used = resident()
    if used + size > _limit:
        more = f", {_text(size)} more needed" if size >= 2**20 else ""
        raise UsageError(
            f"the limit of {_text(_limit)} of memory is reached by {purpose} ({_text(used)} in use{more})",
            f"set a higher --max-memory or {ENVIRONMENT}, read fewer ranks, or convert a trace file with: perfkit "
            "export TRACE --stream -o RUN.perfkit.parquet",
        )


def default_limit() -> float:
    """Return the memory in use plus half of the memory that is free, or infinity if this is unknown."""
    free = _free()
    return float("inf") if free is None else resident() + free / 2


def resident() -> int:
    """Return the resident memory of this process in bytes, its peak on macOS, and 0 where it is unknown."""
    with suppress(OSError), open("/proc/self/statm", "rb") as file:  # noqa: PTH123 (faster, and called often)
        return int(file.read().split()[1]) * mmap.PAGESIZE
    with suppress(ImportError):
        import resource

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return 0


def _free() -> float | None:
    """Return the bytes that are free on this machine, or that the container may still use if this is less."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        free = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration):
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if sys.platform == "darwin" else None
    try:
        most, used = ((_CGROUP / f"memory.{name}").read_text(encoding="ascii") for name in ("max", "current"))
        return min(free, int(most) - int(used))
    except (OSError, ValueError):  # no container, or no limit ("max")
        return free


def _text(size: float) -> str:
    return f"{size / 2**30:.1f} GiB" if size >= 2**30 else f"{size / 2**20:.0f} MiB"
