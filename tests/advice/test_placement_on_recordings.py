"""Advice on placement, in both directions, on recorded operators of both frameworks with an invented device."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from perfkit_core.advice.advice import Advice
from perfkit_core.advice.engine import advise
from perfkit_core.advice.operators import operator_order
from perfkit_core.readers.load import load
from perfkit_core.trace.model.trace import Trace
from tests.support.advised import BOTH
from tests.support.invented_device import KERNEL_NS, Role, with_device
from tests.support.paddle_executor import run_in_one_thread

STEPS = 6


def control_flow(framework: str, folder: Path) -> Trace:
    """Record a loop that counts in a tensor of one number, and multiplies matrices."""
    if framework == "torch":
        import torch

        def step() -> None:
            count, values = torch.zeros(()), torch.ones(128, 128)
            while float(count) < 4:
                count = count + 1
                values = values @ values
                values = values / values.max()

        return recorded_by_torch(step, folder)
    import paddle

    def step_of_paddle() -> None:
        count, values = paddle.zeros([]), paddle.ones([128, 128])
        while float(paddle.assign(count)) < 4:  # Paddle records no operator when the host reads a number
            count = count + 1
            values = paddle.matmul(values, values)
            values = values / values.max()

    return recorded_by_paddle(step_of_paddle, folder)


def sorting(framework: str, folder: Path) -> Trace:
    """Record a product, a sort, and another product."""
    if framework == "torch":
        import torch

        values = torch.rand(256, 256)
        return recorded_by_torch(lambda: (values @ values).clone().sort()[0].clone() @ values, folder)
    import paddle

    rows = paddle.rand([256, 256])

    def step() -> None:
        paddle.matmul(paddle.assign(paddle.sort(paddle.assign(paddle.matmul(rows, rows)))), rows)

    return recorded_by_paddle(step, folder)


def recorded_by_torch(step: Any, folder: Path) -> Trace:
    import torch

    from perfkit_torch import schedule, trace_handler

    handler = trace_handler(folder)
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU], record_shapes=True, on_trace_ready=handler,
        schedule=schedule(wait=1, warmup=1, active=STEPS, repeat=1),
    ) as profiler:  # fmt: skip
        for _ in range(STEPS + 2):
            step()
            profiler.step()
    handler.flush()
    return load(folder)


def recorded_by_paddle(step: Any, folder: Path) -> Trace:
    import paddle

    from perfkit_paddle import make_scheduler, trace_handler

    run_in_one_thread(paddle)
    handler = trace_handler(folder)
    scheduler = make_scheduler(closed=1, ready=1, record=STEPS, repeat=1)
    targets = [paddle.profiler.ProfilerTarget.CPU]
    with paddle.profiler.Profiler(targets=targets, scheduler=scheduler, on_trace_ready=handler) as profiler:
        for _ in range(STEPS + 2):
            step()
            profiler.step()
    handler.flush()
    return load(folder)


def advice_on(trace: Trace, rule: str) -> list[Advice]:
    found = advise(trace, rules=[rule], outcomes=[])
    assert rule not in found.not_evaluable, found.not_evaluable
    return [*found.advice, *found.without_saving]


def counting(name: str, number: int) -> Role:
    """The counter and the matrices are on the device."""
    if name in ("item", "assign"):
        return "to host"
    return "kernel" if name in ("matmul", "divide", "max") else "small kernel"


@BOTH
def test_a_counter_on_the_device_belongs_on_the_host(framework: str, tmp_path: Path) -> None:
    pytest.importorskip(framework)
    trace = with_device(control_flow(framework, tmp_path), counting)
    (one,) = advice_on(trace, "tiny-ops-on-device")
    assert one.candidate.direction == "to host"
    assert one.prediction.saving_ns is not None
    assert one.prediction.saving_ns > 0
    # the waits end, but the products must still be computed
    work = 4 * 3 * KERNEL_NS["kernel"]
    assert (one.prediction.p50_ns or 0) >= work
    assert one.remedy is not None


@BOTH
def test_large_matrices_stay_on_the_device(framework: str, tmp_path: Path) -> None:
    """The host fetches a number that kernels with many blocks have computed."""
    pytest.importorskip(framework)

    def large(name: str, number: int) -> Role:
        role = counting(name, number)
        return "kernel" if role == "small kernel" else role

    trace = with_device(control_flow(framework, tmp_path), large)
    assert advice_on(trace, "tiny-ops-on-device") == []


def between_copies(name: str, number: int) -> Role:
    if name in ("copy", "assign"):
        return "to host" if number == 0 else "to device"
    return "host" if name == "sort" else "kernel"


@BOTH
def test_an_operator_between_copies_belongs_on_the_device(framework: str, tmp_path: Path) -> None:
    pytest.importorskip(framework)
    trace = with_device(sorting(framework, tmp_path), between_copies, copied_bytes=256 * 256 * 4)
    (one,) = advice_on(trace, "cpu-fallback")
    assert one.candidate.direction == "to device"
    assert "sort" in " ".join(one.candidate.evidence["operators"]).lower() or framework == "paddle"
    assert (one.prediction.saving_ns or 0) > 0
    # the host must still call the products
    rows = operator_order(trace).row  # without operators inside operators
    products = rows[trace.rows("op_name", "matmul")[rows]]
    called = np.bincount(trace.ints("step")[products], trace.ints("dur_ns")[products])
    assert (one.prediction.p50_ns or 0) >= called[called > 0].min()


@BOTH
def test_small_copies_are_no_fallback(framework: str, tmp_path: Path) -> None:
    pytest.importorskip(framework)
    trace = with_device(sorting(framework, tmp_path), between_copies, copied_bytes=1_000)
    assert advice_on(trace, "cpu-fallback") == []
