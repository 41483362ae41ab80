"""The limit of the memory that perfkit may use. Code calls :func:`require` before it allocates much memory.

The limit counts resident memory. A limit of the address space (``ulimit -v``) would also count memory that is reserved
but not used, such as that of libraries. Before the limit is exceeded, cached results are dropped. Recordings of a live
process are never limited, because they would be lost."""

from __future__ import annotations

import mmap
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
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
        for kind, used in ((resource.RLIMIT_AS, sizes[0]), (resource.RLIMIT_DATA, sizes[5])):
            most = resource.getrlimit(kind)[0]
            if most != resource.RLIM_INFINITY:
                yield most - used


def _text(size: float) -> str:
    return f"{size / 2**30:.1f} GiB" if size >= 2**30 else f"{size / 2**20:.0f} MiB"
