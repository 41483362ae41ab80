"""perfkit for PaddlePaddle. To record a run, pass ``on_trace_ready=trace_handler(run_dir)`` to Paddle's Profiler."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from perfkit_paddle.collectives import annotate_collectives
    from perfkit_paddle.layers import annotate, describe
    from perfkit_paddle.on_trace_ready import trace_handler
    from perfkit_paddle.throughput import Throughput
    from perfkit_paddle.timed_schedule import make_scheduler

__all__ = ["Throughput", "annotate", "annotate_collectives", "describe", "make_scheduler", "trace_handler"]

_HOMES = {
    "Throughput": "throughput",
    "annotate": "layers",
    "annotate_collectives": "collectives",
    "describe": "layers",
    "make_scheduler": "timed_schedule",
    "trace_handler": "on_trace_ready",
}


def __getattr__(name: str) -> Any:
    from perfkit_core.base.system.packages import exported
    from perfkit_paddle.wheels import tell_mismatches

    tell_mismatches()
    return exported(__name__, name, _HOMES, "paddle")
