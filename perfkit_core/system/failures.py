"""What is said when recording fails inside someone's training: one line in the log; the traceback at level DEBUG."""

from __future__ import annotations

import contextlib
import logging
import tempfile
from pathlib import Path

from perfkit_core.system.paths import is_remote, why_unwritable_store

logger = logging.getLogger("perfkit")


def told(error: BaseException) -> str:
    """An error in one line. What the system refuses has its own words; all else is named by its type."""
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return " ".join(f"{type(error).__name__}: {error}".split())


def log(text: str, error: BaseException) -> None:
    """One line at level ERROR, and where it happened at level DEBUG, by the logger ``perfkit``."""
    tell(f"{text} ({told(error)})")
    tell(text, logging.DEBUG, error)


def tell(text: str, level: int = logging.ERROR, error: BaseException | None = None) -> None:
    """One line by the logger ``perfkit``. Never raises: handlers of the logger are the training's own."""
    with contextlib.suppress(Exception):
        logger.log(level, "perfkit: %s", text, exc_info=error)


def outlook(folder: Path) -> str:
    """What becomes of cycles that end while a folder cannot be written."""
    return f"until it can, cycles are {'kept on this machine' if is_remote(folder) else 'lost'}"


def why_unwritable(folder: Path) -> str | None:
    """The reason in words why no file can be written in a folder that may not be there yet, None where one can.

    Leaves nothing behind: what is tried is a nameless file in the folder, or in the nearest one above it that exists;
    in a store an empty file, which is removed again.
    """
    if is_remote(folder):
        return why_unwritable_store(folder)
    try:
        there = next(place for place in (folder, *folder.absolute().parents) if place.exists())
        with tempfile.TemporaryFile(dir=there):
            return None
    except OSError as error:
        return error.strerror or str(error)
