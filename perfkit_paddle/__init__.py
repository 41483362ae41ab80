"""perfkit for PaddlePaddle: pass ``trace_handler(run_dir)`` to ``paddle.profiler.Profiler`` as ``on_trace_ready``."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Any

__all__ = ["trace_handler"]


def trace_handler(run_dir: str | os.PathLike[str], also: Iterable[Callable[[Any], Any]] = ()) -> Callable[[Any], None]:
    """See :func:`perfkit_paddle.capture.trace_handler`."""
    from perfkit_paddle.capture import trace_handler as make

    return make(run_dir, also)
