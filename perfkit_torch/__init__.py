"""perfkit for PyTorch. To record a run, pass ``on_trace_ready=trace_handler(run_dir)`` to torch.profiler.profile."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from perfkit_torch.layers import annotate, describe
    from perfkit_torch.on_trace_ready import trace_handler
    from perfkit_torch.throughput import Throughput
    from perfkit_torch.timed_schedule import schedule

__all__ = ["Throughput", "annotate", "describe", "schedule", "trace_handler"]

_HOMES = {
    "Throughput": "throughput",
    "annotate": "layers",
    "describe": "layers",
    "schedule": "timed_schedule",
    "trace_handler": "on_trace_ready",
}


def __getattr__(name: str) -> Any:
    from perfkit_core.base.system.packages import exported

    return exported(__name__, name, _HOMES, "torch")
