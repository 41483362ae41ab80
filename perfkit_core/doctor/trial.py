"""A trial recording by an adapter, for ``perfkit doctor``: whether a framework's profiler records operators and
work of a device."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from perfkit_core.errors import SourceError
from perfkit_core.model.schema import KERNEL, OPERATOR
from perfkit_core.plugins.checks import PROBLEM, Check
from perfkit_core.readers.load import load
from perfkit_core.storage import store
from perfkit_core.system.failures import logger, one_line


class _Log(logging.Handler):
    """Keeps the last message of perfkit's logger, which says why a handler recorded nothing."""

    last = ""

    def emit(self, record: logging.LogRecord) -> None:
        self.last = record.getMessage()


def recorded(framework: str, record: Callable[[str], None], on_device: bool) -> Iterator[Check]:
    """Yield what the framework's profiler records. ``record(folder)`` records an operator through the adapter's
    ``trace_handler`` into a folder. ``on_device`` says whether the operator runs on a device."""
    name, log = f"framework.{framework}.recording", _Log()
    logger.addHandler(log)
    try:
        with tempfile.TemporaryDirectory(prefix="perfkit-") as folder:
            record(folder)
            store.flush(Path(folder), None)
            trace = load(folder)
            operators, kernels = int(trace.rows("kind", OPERATOR).sum()), int(trace.rows("kind", KERNEL).sum())
    except SourceError as error:
        yield Check(name, PROBLEM, f"the profiler of {framework} recorded nothing ({log.last or error.message})")
        return
    except Exception as error:  # a framework may raise anything
        yield Check(name, PROBLEM, f"the profiler of {framework} does not work ({one_line(error)})")
        return
    finally:
        logger.removeHandler(log)
    data = {"operators": operators, "kernels": kernels if on_device else None}
    if not operators:
        yield Check(name, PROBLEM, f"the profiler of {framework} recorded no operators", data=data)
    elif not on_device:
        yield Check(name, "ok", f"the profiler of {framework} records operators", data=data)
    elif kernels:
        yield Check(name, "ok", f"the profiler of {framework} records operators and kernels of the device", data=data)
    else:
        text = f"the profiler of {framework} records operators, but no kernels of the device"
        fix = "see the checks of the GPU driver; another profiler of the GPU may be running"
        yield Check(name, PROBLEM, text, fix, data)
