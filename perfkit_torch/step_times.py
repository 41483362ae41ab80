"""Calls after each update of a torch training, without a profiler."""

from __future__ import annotations

from typing import Any

from perfkit_core.verification.step_times import OptimizerSteps
from perfkit_torch.throughput import Throughput


def start() -> OptimizerSteps:
    """Time the updates of the first optimizer of this process that updates anything."""
    from torch.optim.optimizer import register_optimizer_step_post_hook

    steps, first = OptimizerSteps(Throughput(warmup=0)), None

    def after(optimizer: Any, *_: Any) -> None:
        nonlocal first
        first = first or id(optimizer)
        if first == id(optimizer):
            steps.updated()

    register_optimizer_step_post_hook(after)
    return steps
