"""Is everything written that this process has recorded into a folder? Asked by whoever reads it; imports nothing.

The mark of a run folder in which a cycle is missing.
"""

from __future__ import annotations

import logging
import os
import sys
from pathlib import Path
from typing import Final

from perfkit_core.system import failures
from perfkit_core.system.paths import is_remote

_WRITER = "perfkit_core.recording.background"


def flush(path: Path | None = None, timeout: float | None = None) -> bool:
    """Wait until the cycles taken so far are on disk: those of ``path``, below it and above it, all when None.

    ``timeout`` in seconds, None: as long as it takes. False when it ran out. A process that has recorded nothing
    returns at once.
    """
    writer = sys.modules.get(_WRITER)
    return True if writer is None else bool(writer.shared().flush(path, timeout))


INCOMPLETE_MARK: Final = "INCOMPLETE"
"""A file of this name in a run folder says that at least one cycle is missing; its text says which and why."""


def mark(run_dir: Path, cycle: int, error: BaseException) -> None:
    """Say in the run folder that a cycle of this process is missing, and why. Never raises."""
    line = f"process {os.getpid()}, cycle {cycle}: {failures.told(error)}\n"
    try:
        _append(run_dir / INCOMPLETE_MARK, line)
    except Exception as failure:  # the drivers of stores have errors of their own
        failures.tell(f"{run_dir} cannot be written: {failure}", logging.DEBUG)


def _append(file: Path, line: str) -> None:
    """Object stores cannot append."""
    if is_remote(file):
        file.write_text((file.read_text(encoding="utf-8") if file.exists() else "") + line, encoding="utf-8")
        return
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("a", encoding="utf-8") as opened:
        opened.write(line)
