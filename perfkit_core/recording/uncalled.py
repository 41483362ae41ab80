"""A handler that its profiler never calls, because the loop forgets ``step()`` or the schedule never gets to record."""

from __future__ import annotations

import logging
import os
import weakref
from pathlib import Path
from typing import Any

from perfkit_core.system import failures


def watch(handler: object, run_dir: Path) -> weakref.finalize[..., Any]:
    """Warn when the process ends or the handler is gone, unless ``detach()`` of what is returned was called before.

    Forked children do not warn: the handler is their parent's.
    """
    return weakref.finalize(handler, _warn, run_dir, os.getpid())


def _warn(run_dir: Path, pid: int) -> None:
    if os.getpid() != pid:
        return
    failures.tell(
        f"a handler recorded nothing into {run_dir}: its profiler never ended a cycle. Does the loop call the "
        "profiler's step(), and does the schedule reach its active steps?",
        logging.WARNING,
    )
