"""Advice on placement, in both directions, on recorded operators of both frameworks with an invented device."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from perfkit_core.advice.advice import Advice
from perfkit_core.advice.engine import advise
from perfkit_core.readers.load import load
from perfkit_core.trace.model.trace import Trace
from tests.support.frameworks import FRAMEWORKS, Framework
from tests.support.invented_device import KERNEL_NS, Role, with_device

STEPS = 6


@pytest.fixture(scope="module", params=FRAMEWORKS)
def native(request: pytest.FixtureRequest) -> Framework:
    return FRAMEWORKS[request.param]()


def recorded(native: Framework, folder: Path, step: Callable[[], object]) -> Trace:
    schedule = native.schedule(wait=1, warmup=1, active=STEPS, repeat=1)
    handler = native.trace_handler(folder)
    with native.profiler(schedule, on_trace_ready=handler, record_shapes=True) as profiler:
        for _ in range(STEPS + 2):
            step()
            profiler.step()
    return load(folder)


@pytest.fixture(scope="module")
def control_flow(native: Framework, tmp_path_factory: pytest.TempPathFactory) -> Trace:
    """Record a loop that counts in a tensor of one number, and multiplies matrices."""
    module = native.module

    def step() -> None:
        count, values = module.zeros([]), native.ones(128, 128)
        # Paddle records no operator when the host reads a number
        while float(count if native.name == "torch" else module.assign(count)) < 4:
            count = count + 1
            values = values @ values
            values = values / values.max()

    return recorded(native, tmp_path_factory.mktemp("control_flow"), step)


@pytest.fixture(scope="module")
def sorting(native: Framework, tmp_path_factory: pytest.TempPathFactory) -> Trace:
    """Record a product, a sort, and another product."""
    module, values = native.module, native.module.rand([256, 256])

    def of_torch() -> None:
        (values @ values).clone().sort()[0].clone() @ values

    def of_paddle() -> None:
        module.matmul(module.assign(module.sort(module.assign(module.matmul(values, values)))), values)

    step = of_torch if native.name == "torch" else of_paddle
    return recorded(native, tmp_path_factory.mktemp("sorting"), step)


def advice_on(trace: Trace, rule: str) -> list[Advice]:
    found = advise(trace, rules=[rule], outcomes=[])
    assert rule not in found.not_evaluable, found.not_evaluable
    return [*found.advice, *found.without_saving]


def counting(name: str, number: int) -> Role:
    """The counter and the matrices are on the device."""
    if name in ("item", "assign"):
        return "to host"
    return "kernel" if name in ("matmul", "divide", "max") else "small kernel"


def test_a_counter_on_the_device_belongs_on_the_host(control_flow: Trace) -> None:
    trace = with_device(control_flow, counting)
    (one,) = advice_on(trace, "tiny-ops-on-device")
    assert one.candidate.direction == "to host"
    assert one.prediction.saving_ns is not None
    assert one.prediction.saving_ns > 0
    # the waits end, but the products must still be computed
    work = 4 * 3 * KERNEL_NS["kernel"]
    assert (one.prediction.p50_ns or 0) >= work
    assert one.remedy is not None


def test_large_matrices_stay_on_the_device(control_flow: Trace) -> None:
    """The host fetches a number that kernels with many blocks have computed."""

    def large(name: str, number: int) -> Role:
        role = counting(name, number)
        return "kernel" if role == "small kernel" else role

    trace = with_device(control_flow, large)
    assert advice_on(trace, "tiny-ops-on-device") == []


def between_copies(name: str, number: int) -> Role:
    if name in ("copy", "assign"):
        return "to host" if number == 0 else "to device"
    return "host" if name == "sort" else "kernel"


def test_an_operator_between_copies_belongs_on_the_device(native: Framework, sorting: Trace) -> None:
    trace = with_device(sorting, between_copies, copied_bytes=256 * 256 * 4)
    (one,) = advice_on(trace, "cpu-fallback")
    assert one.candidate.direction == "to device"
    assert "sort" in " ".join(one.candidate.evidence["operators"]).lower() or native.name == "paddle"
    assert one.prediction.saving_ns is None, "nobody measured how fast the device is"
    assert (one.prediction.ceiling_ns or 0) > 0


def test_small_copies_are_no_fallback(sorting: Trace) -> None:
    trace = with_device(sorting, between_copies, copied_bytes=1_000)
    assert advice_on(trace, "cpu-fallback") == []
