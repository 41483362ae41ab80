"""perfkit for PyTorch: pass ``trace_handler(run_dir)`` to ``torch.profiler.profile`` as ``on_trace_ready``."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from perfkit_core.recording.writer import CycleWriter
    from perfkit_torch.layers import annotate, describe
    from perfkit_torch.throughput import Throughput

__all__ = ["Throughput", "annotate", "describe", "trace_handler"]

_HOMES = {"Throughput": "throughput", "annotate": "layers", "describe": "layers"}


def trace_handler(run_dir: str | os.PathLike[str], also: Iterable[Callable[[Any], Any]] = ()) -> CycleWriter[Any]:
    """See :func:`perfkit_torch.capture.trace_handler`."""
    from perfkit_torch.capture import trace_handler as make

    return make(run_dir, also)


def __getattr__(name: str) -> Any:
    """``Throughput``, ``annotate`` and ``describe`` are imported on first use."""
    from perfkit_core.system.packages import exported

    return exported(__name__, name, _HOMES, "torch")
