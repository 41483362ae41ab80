"""Calls after each update of a Paddle training, without a profiler."""

from __future__ import annotations

from perfkit_core.verification.step_times import OptimizerSteps
from perfkit_paddle.throughput import Throughput
from perfkit_paddle.updates import Updates


def start() -> OptimizerSteps:
    """Time the updates of the first optimizer of this process that updates anything; of dynamic graphs only."""
    steps = OptimizerSteps(Throughput(warmup=0))
    Updates(steps.updated)
    return steps
