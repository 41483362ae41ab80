"""Log messages about failures during training. Each message has one line; the traceback is logged at level DEBUG."""

from __future__ import annotations

import contextlib
import functools
import logging
import signal
from pathlib import Path
from typing import Any

from perfkit_core.system.paths import check_replaceable, is_remote, printable, why_unwritable_store

logger = logging.getLogger("perfkit")


def one_line(error: BaseException) -> str:
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return " ".join(f"{type(error).__name__}: {error}".split()).removesuffix(":")


def log(text: str, error: BaseException) -> None:
    tell(f"{text} ({one_line(error)})")
    tell(text, logging.DEBUG, error)


def tell(text: str, level: int = logging.ERROR, error: BaseException | None = None) -> None:
    """Log one line. Never raises, because the logger's handlers belong to the training and may fail."""
    with contextlib.suppress(Exception):
        logger.log(level, "perfkit: %s", printable(text), exc_info=error)


def raised_by_signal(error: BaseException) -> bool:
    """Return whether a Python handler of a signal raised the error. Such an error belongs to the training, and must not
    be suppressed, in whatever code the signal arrived."""
    codes = {_code(signal.getsignal(number)) for number in signal.valid_signals()} - {None}
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code in codes:
            return True
        trace = trace.tb_next
    return False


def _code(handler: Any) -> Any:
    if isinstance(handler, functools.partial):
        handler = handler.func
    if not hasattr(handler, "__code__") and callable(handler):
        handler = type(handler).__call__
    return getattr(handler, "__code__", None)


def why_unwritable(folder: Path) -> str | None:
    """Return the reason why no file can be written in a folder, or None if one can be written. The folder need not
    exist. A remote store is tested with an empty file, which is then removed."""
    if is_remote(folder):
        return why_unwritable_store(folder)
    try:
        check_replaceable(folder / "probe")
        return None
    except OSError as error:
        return error.strerror or str(error)
