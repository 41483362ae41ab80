"""The mark of a run folder in which a cycle is missing."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from perfkit_core.recording import failures
from perfkit_core.recording.failures import logger

INCOMPLETE_MARK: Final = "INCOMPLETE"
"""A file of this name in a run folder says that at least one cycle is missing; its text says which and why."""


def mark(run_dir: Path, cycle: int, error: BaseException) -> None:
    """Say in the run folder that a cycle of this process is missing, and why. Never raises."""
    try:
        run_dir.mkdir(parents=True, exist_ok=True)
        with (run_dir / INCOMPLETE_MARK).open("a", encoding="utf-8") as file:
            file.write(f"process {os.getpid()}, cycle {cycle}: {failures.told(error)}\n")
    except OSError as failure:
        logger.debug("perfkit: %s cannot be written: %s", run_dir, failure)
