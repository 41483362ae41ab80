"""The machine of this process: its processor, its usable cores, the configured numbers of threads, its display, and the
limit of the memory that perfkit may use. Code calls :func:`require` before it allocates much memory.

The limit counts resident memory. A limit of the address space (``ulimit -v``) would also count memory that is reserved
but not used, such as that of libraries. Before the limit is exceeded, cached results are dropped. Recordings of a live
process are never limited, because they would be lost."""

from __future__ import annotations

import hashlib
import mmap
import os
import platform
import socket
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol
from weakref import WeakValueDictionary

from perfkit_core.errors import UsageError

ENVIRONMENT: Final = "PERFKIT_MAX_MEMORY"
"""Environment variable with the limit, such as ``8 GiB``."""
_CGROUP, _OWN_CGROUPS = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")

_SPARE: Final = 2
"""Cached results are dropped until this multiple of the required size is free, because temporary arrays follow."""
_SMALL: Final = 1 << 20
"""Fewer bytes are not checked, and smaller results are not dropped."""

_limit: float = float("inf")


class Droppable(Protocol):
    """A cache of results that can be dropped, because they can be made again."""

    def droppable(self) -> Iterable[tuple[int, Callable[[], None]]]:
        """Return the size in bytes of each result, and a function that drops the result."""


caches: WeakValueDictionary[int, Droppable] = WeakValueDictionary()
"""The caches of this process by their ``id``."""


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
    """Make room for ``size`` more bytes: if the process would exceed its limit, drop cached results. Raises UsageError
    if this is not enough. A size of 0 means that memory has already been used. A check takes 10 µs; sizes below 1 MB
    are not checked."""
    if not is_limited() or 0 < size < _SMALL:
        return
    used = resident()
    if used + _SPARE * size > _limit:
        _drop_results(_SPARE * size)
        used = resident()
    if used + size > _limit:
        more = f", {_text(size)} more needed" if size >= 2**20 else ""
        raise UsageError(
            f"the limit of {_text(_limit)} of memory is reached by {purpose} ({_text(used)} in use{more})",
            f"set a higher --max-memory or {ENVIRONMENT}, read fewer ranks, or convert a trace file with: perfkit "
            "export TRACE --stream -o RUN.perfkit.parquet",
        )


def _drop_results(size: float) -> None:
    """Drop cached results until ``size`` bytes are free. The largest come first: columns are read again faster than
    masks, which need less memory, are computed."""
    live = [reference() for reference in caches.valuerefs()]  # a copy, as another thread may add a cache
    results = [result for cache in live if cache for result in cache.droppable() if result[0] >= _SMALL]
    for _, drop in sorted(results, key=lambda result: result[0], reverse=True):
        drop()
        if resident() + size <= _limit:
            return


def default_limit() -> float:
    """Return the memory in use plus half of the memory that is free, or infinity if this is unknown."""
    free_bytes = free()
    return float("inf") if free_bytes is None else resident() + free_bytes / 2


def resident() -> int:
    """Return the resident memory of this process in bytes, its peak on macOS, and 0 where it is unknown."""
    with suppress(OSError), open("/proc/self/statm", "rb") as file:  # noqa: PTH123 (faster, and called often)
        return int(file.read().split()[1]) * mmap.PAGESIZE
    with suppress(ImportError):
        import resource

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return 0


_RESERVED: Final = 1 << 30
"""Addresses that the libraries of perfkit's reading reserve and hardly use: allocators, code, stacks of threads."""


def free() -> float | None:
    """Return the bytes that this process may still use: those that are free on this machine, or less if a control group
    (a container, ``systemd-run``) or a limit of the process (``ulimit``) allows less. None where this is unknown."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        on_machine = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration):
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if sys.platform == "darwin" else None
    return max(min([on_machine, *_free_in_groups(), *_free_of_process()]), 0)


def _free_in_groups() -> Iterator[int]:
    """Yield what the process may still use in each control group that it is in, of both versions. Files that the
    system has read count as used there, although their memory is freed when it is needed."""
    groups: list[tuple[Path, str, str]] = []
    with suppress(OSError, ValueError):
        for line in _OWN_CGROUPS.read_text(encoding="utf-8").splitlines():
            _, controllers, path = line.split(":", 2)
            if not controllers:
                groups.append((_CGROUP / path.lstrip("/"), "memory.max", "memory.current"))
            elif "memory" in controllers.split(","):
                root = _CGROUP / "memory"
                groups.append((root / path.lstrip("/"), "memory.limit_in_bytes", "memory.usage_in_bytes"))
                groups.append((root, "memory.limit_in_bytes", "memory.usage_in_bytes"))  # within a container
    groups.append((_CGROUP, "memory.max", "memory.current"))
    for folder, limit, current in groups:
        while folder != _CGROUP.parent:
            with suppress(OSError, ValueError, StopIteration):  # no limit is "max"
                most, used = (int((folder / name).read_text(encoding="ascii")) for name in (limit, current))
                lines = (folder / "memory.stat").read_text(encoding="ascii").splitlines()
                cached = next(int(line.split()[1]) for line in lines if line.startswith("inactive_file "))
                yield most - used + cached
            folder = folder.parent


def _free_of_process() -> Iterator[int]:
    with suppress(ImportError, OSError, ValueError):
        import resource

        sizes = [int(size) * mmap.PAGESIZE for size in Path("/proc/self/statm").read_text(encoding="ascii").split()]
        for kind, used in ((resource.RLIMIT_AS, sizes[0] + _RESERVED), (resource.RLIMIT_DATA, sizes[5])):
            most = resource.getrlimit(kind)[0]
            if most != resource.RLIM_INFINITY:
                yield most - used


def _text(size: float) -> str:
    return f"{size / 2**30:.1f} GiB" if size >= 2**30 else f"{size / 2**20:.0f} MiB"


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
