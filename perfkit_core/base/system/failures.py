"""Log messages about failures during training. Each message has one line; the traceback is logged at level DEBUG."""

from __future__ import annotations

import atexit
import contextlib
import functools
import logging
import os
import signal
from collections import Counter
from pathlib import Path
from typing import Any

from perfkit_core.base.system.paths import check_replaceable, is_remote, printable, why_unwritable_store

logger = logging.getLogger("perfkit")
_counts: Counter[tuple[int, str]] = Counter()


def one_line(error: BaseException) -> str:
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return " ".join(f"{type(error).__name__}: {error}".split()).removesuffix(":")


def log(text: str, error: BaseException) -> None:
    tell(f"{text} ({one_line(error)})")
    tell(text, logging.DEBUG, error)


def log_first(text: str, error: BaseException) -> None:
    """Log the first error with this text. Later ones are counted, and the end of the process logs their number."""
    key = os.getpid(), text  # a forked child counts its own
    _counts[key] += 1
    if _counts[key] == 1:
        log(text, error)
        return
    if _counts[key] == 2:
        atexit.register(_tell_count, key)
    tell(text, logging.DEBUG, error)


def _tell_count(key: tuple[int, str]) -> None:
    if key[0] == os.getpid():
        tell(f"{_counts[key]} times in this process: {key[1]}")


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
