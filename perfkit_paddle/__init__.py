"""perfkit for PaddlePaddle: pass ``trace_handler(run_dir)`` to ``paddle.profiler.Profiler`` as ``on_trace_ready``."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from perfkit_paddle.modules import annotate, describe
    from perfkit_paddle.throughput import Throughput

__all__ = ["Throughput", "annotate", "describe", "trace_handler"]


def trace_handler(run_dir: str | os.PathLike[str], also: Iterable[Callable[[Any], Any]] = ()) -> Callable[[Any], None]:
    """See :func:`perfkit_paddle.capture.trace_handler`."""
    from perfkit_paddle.capture import trace_handler as make

    return make(run_dir, also)


def __getattr__(name: str) -> Any:
    """``Throughput``, ``annotate`` and ``describe`` are imported on first use."""
    if name == "Throughput":
        from perfkit_paddle.throughput import Throughput

        return Throughput
    if name in ("annotate", "describe"):
        from perfkit_paddle import modules

        return getattr(modules, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
