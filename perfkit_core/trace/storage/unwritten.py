"""Cycles that are not in the run folder: those that are being written, and those that were lost.

Before the work on a cycle begins, an empty file with the suffix ``.perfkit.pending`` is created, whose name contains
the name of the cycle and its process. It is removed when the cycle is written. If the process is killed, the file
stays, so that readers can tell what was lost. Remote stores have no such files: each would cost the training two
requests. Cycles that could not be written are listed in the file ``INCOMPLETE``, with the reasons."""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from perfkit_core.base.system import failures, owner, paths
from perfkit_core.trace.storage.store import SUFFIX

PENDING_SUFFIX: Final = ".perfkit.pending"
INCOMPLETE_MARK: Final = "INCOMPLETE"
"""Name of the file in a run folder that lists the cycles that could not be saved, and the reasons."""
_PENDING: Final = re.compile(rf"(.+-cycle(\d+)-.+-(\d+-[0-9a-f]+))\.([^.]+){re.escape(PENDING_SUFFIX)}")

_Line = tuple[str, Path | None]
_unsaved: dict[tuple[int, Path], list[_Line]] = {}
"""Process and run folder → lines that could not be added to the file ``INCOMPLETE``, and pending files of cycles."""


def begin(cycle: Path) -> Path | None:
    """Create the pending file of the cycle that will be written to ``cycle``, and return its path. Never raises."""
    if paths.is_remote(cycle):
        return None
    path = cycle.with_name(f"{cycle.name.removesuffix(SUFFIX)}.{owner.owner()}{PENDING_SUFFIX}")
    try:
        with contextlib.suppress(FileNotFoundError):
            os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o666))
            return path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    except OSError:  # writing the cycle fails, too, and tells why
        return None
    return path


def end(pending: Path | None) -> None:
    """Remove a pending file. Never raises."""
    if pending is not None:
        with contextlib.suppress(OSError):
            pending.unlink()


@dataclass(frozen=True, slots=True)
class Pending:
    """A cycle without a file. ``lost``: whether its process has ended, or None if that cannot be known. ``since_ns``:
    when it was taken from the profiler, in ns since 1970."""

    name: str
    recording: str
    cycle: int
    lost: bool | None
    since_ns: int


def pending(run_dir: Path) -> list[Pending]:
    """Return the cycles in a local run folder that are not written, sorted by name."""
    cycles = []
    for path in () if paths.is_remote(run_dir) else sorted(run_dir.glob(f"*{PENDING_SUFFIX}")):
        match = _PENDING.fullmatch(path.name)
        with contextlib.suppress(OSError):  # written meanwhile
            if match is not None:
                since_ns, lost = path.stat().st_mtime_ns, owner.has_ended(match[4])
                if not path.with_name(match[1] + SUFFIX).exists():  # killed before the pending file was removed
                    cycles.append(Pending(match[1], match[3], int(match[2]), lost, since_ns))
    return cycles


def mark_incomplete(run_dir: Path, cycle: int, error: BaseException, pending: Path | None = None) -> None:
    """Write to the run folder that a cycle of this process could not be saved, and why. If this fails, for example
    because the disk is full, it is tried again with the next failure, and at the end of the process. Never raises."""
    key = os.getpid(), run_dir
    if key not in _unsaved:
        _unsaved[key] = []
        atexit.register(_save, key)
    _unsaved[key].append((f"process {os.getpid()}, cycle {cycle}: {failures.one_line(error)}", pending))
    _save(key)


def _save(key: tuple[int, Path]) -> None:
    if key[0] != os.getpid():  # a forked child has the lines of its parent
        return
    mark = key[1] / INCOMPLETE_MARK
    lines, _unsaved[key] = _unsaved[key], []
    if not lines:
        return
    text = "\n".join(line for line, _ in lines)
    try:
        if paths.is_remote(mark):  # remote stores cannot append
            before = mark.read_text(encoding="utf-8") if mark.exists() else ""
            mark.write_text(f"{before}{text}\n", encoding="utf-8")
        else:
            paths.append_line(mark, text.encode("utf-8", "backslashreplace"))
    except Exception as failure:  # each driver of a store has its own error classes
        _unsaved[key] = lines + _unsaved[key]
        failures.tell(f"{key[1]} cannot be written: {failure}", logging.DEBUG)
    else:
        for _, path in lines:
            end(path)
