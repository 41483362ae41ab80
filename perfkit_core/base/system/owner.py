"""The process that a file belongs to, and whether it has ended. The files of killed processes are found by it."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import re
import socket
import uuid
from pathlib import Path
from typing import Final

_OWNER: Final = re.compile(r"(\d+)-(\d+)-([0-9a-f]{8})")
_TEMPORARY: Final = re.compile(rf"\..+\.({_OWNER.pattern})\.[0-9a-f]{{8}}\.tmp")


def owner() -> str:
    """Return a text that names this process. It has no dots, and fits into a file name."""
    return _of(os.getpid())


@functools.cache  # the start of a forked child is another
def _of(pid: int) -> str:
    return f"{pid}-{_start(pid) or 0}-{_machine()}"


def temporary_name(name: str) -> str:
    """Return a hidden name for a file of this process that becomes ``name`` when it is complete."""
    return f".{name}.{owner()}.{uuid.uuid4().hex[:8]}.tmp"


def remove_stale(folder: Path) -> None:
    """Remove temporary files from a local folder whose processes were killed. Never raises."""
    with contextlib.suppress(OSError):
        for entry in os.scandir(folder):
            match = _TEMPORARY.fullmatch(entry.name)
            if match is not None and has_ended(match[1]):
                with contextlib.suppress(OSError):
                    Path(entry.path).unlink()


def has_ended(owner: str) -> bool | None:
    """Return whether the process that :func:`owner` named has ended. None if that cannot be known: it ran on another
    machine or in another container, or the machine was restarted."""
    match = _OWNER.fullmatch(owner)
    if match is None or match[3] != _machine() or os.name != "posix":
        return None
    pid, start = int(match[1]), int(match[2])
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except OSError:  # it belongs to another user
        pass
    now = _start(pid)
    return now is not None and now != start  # a process that started later may have the same number


def _start(pid: int) -> int | None:
    """Return when a process started, in ticks since the start of the machine. 0 if it has ended, but its parent has not
    noticed, and None where the system does not say."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        state, *fields = text.rpartition(")")[2].split()  # the name of a program may contain spaces and brackets
        return 0 if state in "ZX" else int(fields[18])
    return None


@functools.cache
def _machine() -> str:
    """Return a text that differs between machines, containers, and runs of a machine."""
    facts = [socket.gethostname()]
    with contextlib.suppress(OSError):
        facts.append(Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii"))
    with contextlib.suppress(OSError):
        facts.append(str(Path("/proc/self/ns/pid").readlink()))
    return hashlib.blake2b("\n".join(facts).encode(), digest_size=4).hexdigest()
