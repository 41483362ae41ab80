"""Rules 3, 4, 5 and 11: copies between host and device. Times in comments are in µs."""

from __future__ import annotations

import pytest

from perfkit_core.advice.rules.cpu_fallback import find as host_fallback
from perfkit_core.advice.rules.fill_then_copy import find as filled_on_host
from perfkit_core.advice.rules.pageable_copies import find as pageable_copies
from perfkit_core.advice.rules.ping_pong_copies import find as round_trips
from perfkit_core.measure.calibration.bench import LARGE, SMALL, SOURCE, Calibration, Measurement, copy_name
from perfkit_core.replay.transforms import Quantity
from perfkit_core.trace.model.meta import Device
from tests.support.advised import BOTH, Rows, call, copy, found, kernel, op, predicted, steps, why_not

TO = {"torch": "aten::to", "paddle": "memcpy_h2d"}
BACK = {"torch": "aten::to", "paddle": "memcpy_d2h"}
FILL = {"torch": "aten::zeros", "paddle": "full dygraph"}
SORT = {"torch": "aten::sort", "paddle": "argsort dygraph"}


def batch(kind: str, count: int = 300, dur: int = 52) -> Rows:
    """Return a copy and 48 µs of other work. The call of the copy takes ``dur``; the copy itself takes 30 µs and ends 2
    µs before the call."""
    return [call("cudaMemcpyAsync", 0, dur, 1), copy(kind, count, dur - 32, 30, 1), op("compute", dur, 100 - dur)]


@BOTH
def test_pageable_memory_blocks(framework: str) -> None:
    recording = steps(batch("HtoD pageable"), framework=framework)
    (candidate,) = found(pageable_copies, recording)
    # the call takes 5, 8 or 17 µs, followed by 48 µs of other work
    assert predicted(recording, candidate) == (53_000, 56_000, 65_000)
    assert candidate.ceiling_ns == 52_000 + 30_000


def test_pinned_memory_does_not_block() -> None:
    assert found(pageable_copies, steps(batch("HtoD pinned"))) == []
    assert found(pageable_copies, steps(batch("DtoH pageable"))) == []
    assert found(pageable_copies, steps(batch("HtoD"))) == []


def test_as_long_as_the_threshold() -> None:
    assert found(pageable_copies, steps(batch("HtoD pageable")), pageable_share=0.52) == []
    assert len(found(pageable_copies, steps(batch("HtoD pageable")), pageable_share=0.5199)) == 1


def factor(recording_rows: Rows) -> Quantity:
    (candidate,) = found(pageable_copies, steps(recording_rows))
    (assumed,) = [one.value for one in candidate.assumptions if one.name == "copy_factor"]
    assert isinstance(assumed, Quantity)
    return assumed


def test_factor_of_pinned_memory() -> None:
    """A copy of 3 MB in 30 µs is faster than any bus, so the factor is 1. A copy of 2 MB in 400 µs reaches 5 of the 12
    bytes/ns of PCIe 3. If the recording also has pinned copies, their speed is used."""
    assert factor(batch("HtoD pageable", 3_000_000)).mid == 1
    slow = [call("cudaMemcpyAsync", 0, 52, 1), copy("HtoD pageable", 2_000_000, 2, 400, 1)]
    assert factor(slow).low == pytest.approx(5 / 24)
    assert factor(slow).mid == pytest.approx(5 / 12)
    assert factor(slow).high == pytest.approx(5 / 6)
    pinned = [*slow, call("cudaMemcpyAsync", 60, 5, 2), copy("HtoD pinned", 2_000_000, 402, 200, 2)]
    assert (factor(pinned).low, factor(pinned).high) == (0.5, 0.5)
    assert "recorded: speed of copies" in str(factor(pinned).source)


def test_factor_of_a_device_with_pcie_5() -> None:
    """A copy of 2 MB in 400 µs reaches 5 of the 36 bytes/ns that are likely for an H100. The numbers of AMD's devices
    look similar, but mean something else."""
    slow = steps([call("cudaMemcpyAsync", 0, 52, 1), copy("HtoD pageable", 2_000_000, 2, 400, 1)])
    for name, major, likely in (("H100", 9, 36), ("A100", 8, 12), ("AMD Radeon Graphics", 9, 12)):
        device = Device("cuda:0", name, properties={"computeMajor": major})
        (candidate,) = found(pageable_copies, slow.with_meta(devices=(device,)))
        (assumed,) = [one.value for one in candidate.assumptions if one.name == "copy_factor"]
        assert isinstance(assumed, Quantity)
        assert assumed.mid == pytest.approx(5 / likely)


def test_factor_from_the_calibration(monkeypatch: pytest.MonkeyPatch) -> None:
    """The calibration gives 50 bytes/ns. The copy of 2 MB in 400 µs reaches a tenth of this speed."""
    times = ((SMALL, 0.0), (LARGE, LARGE / 50))
    copies = tuple(Measurement(copy_name("htod", size, True), ns, ns, ns, 9) for size, ns in times)
    measured = Calibration("fw", "1", "cpu", 2, "H200", 2, "today", copies)
    monkeypatch.setattr("perfkit_core.measure.calibration.calibrate.newest", lambda framework, device: measured)
    slow = steps([call("cudaMemcpyAsync", 0, 52, 1), copy("HtoD pageable", 2_000_000, 2, 400, 1)])
    (candidate,) = found(pageable_copies, slow.with_meta(devices=(Device("cuda:0", "H200"),)))
    (factor_,) = [one for one in candidate.assumptions if one.name == "copy_factor"]
    assert isinstance(factor_.value, Quantity)
    assert factor_.value.mid == pytest.approx(0.1)
    assert factor_.source == SOURCE


def trip(framework: str, count: int, between: Rows, back: int | None = None) -> Rows:
    """Return a copy to the host, the operators ``between``, a copy to the device and 30 µs of other work."""
    return [
        op(BACK[framework], 0, 20),
        call("cudaMemcpyAsync", 2, 16, 1),
        copy("DtoH pageable", count, 5, 10, 1),
        *between,
        op(TO[framework], 50, 20),
        call("cudaMemcpyAsync", 52, 16, 2),
        copy("HtoD pageable", count if back is None else back, 55, 10, 2),
        op("others", 70, 30),
    ]


@BOTH
def test_data_that_come_back_unchanged(framework: str) -> None:
    recording = steps(trip(framework, 4096, []), framework=framework)
    (candidate,) = found(round_trips, recording)
    assert candidate.direction == "to device"
    assert candidate.evidence["copies_ns"] == 40_000
    assert candidate.evidence["bytes_per_step"] == 8192
    assert predicted(recording, candidate) == (60_000, 60_000, 60_000)  # 100 µs without the two copies of 20 µs


@BOTH
def test_different_or_small_copies_are_no_round_trip(framework: str) -> None:
    assert found(round_trips, steps(trip(framework, 4096, [], back=4097), framework=framework)) == []
    assert found(round_trips, steps(trip(framework, 1023, []), framework=framework)) == []
    assert len(found(round_trips, steps(trip(framework, 1024, []), framework=framework))) == 1


@BOTH
def test_an_operator_on_the_host_between_copies(framework: str) -> None:
    recording = steps(trip(framework, 131_072, [op(SORT[framework], 20, 30)]), framework=framework)
    assert found(round_trips, recording) == []
    (candidate,) = found(host_fallback, recording)
    assert candidate.evidence["operators"] == [SORT[framework]]
    assert candidate.evidence["operators_ns"] == 30_000
    # the launch takes 10, 30 or 52 µs, followed by 30 µs of other work; the device needs less time than this
    assert predicted(recording, candidate) == (40_000, 60_000, 82_000)


@BOTH
def test_small_copies_are_no_fallback(framework: str) -> None:
    between = [op(SORT[framework], 20, 30)]
    assert found(host_fallback, steps(trip(framework, 65_535, between), framework=framework)) == []
    assert len(found(host_fallback, steps(trip(framework, 65_536, between), framework=framework))) == 1


def test_views_are_no_fallback() -> None:
    assert found(host_fallback, steps(trip("torch", 131_072, [op("aten::view", 20, 30)]))) == []


def filled(framework: str, name: str, gap: int = 0, count: int = 4096) -> Rows:
    """Return a fill of 20 µs, a gap of ``gap`` µs, a copy of 30 µs and 50 µs of other work."""
    return [
        op(name, 0, 20),
        op(TO[framework], 20 + gap, 30),
        call("cudaMemcpyAsync", 30 + gap, 15, 1),
        copy("HtoD pageable", count, 35 + gap, 5, 1),
        op("others", 50 + gap, 50),
    ]


@BOTH
def test_filled_on_the_host_and_copied(framework: str) -> None:
    recording = steps(filled(framework, FILL[framework]), framework=framework)
    (candidate,) = found(filled_on_host, recording)
    assert candidate.evidence["call_ns"] == 50_000
    assert candidate.evidence["bytes_per_step"] == 4096
    # the launch takes 10, 30 or 52 µs instead of 20 and 30 µs
    assert predicted(recording, candidate) == (60_000, 80_000, 102_000)


@BOTH
def test_other_operators_before_the_copy(framework: str) -> None:
    empty = {"torch": "aten::empty", "paddle": "empty dygraph"}[framework]
    assert found(filled_on_host, steps(filled(framework, empty), framework=framework)) == []
    assert found(filled_on_host, steps(filled(framework, SORT[framework]), framework=framework)) == []
    between = [*filled(framework, FILL[framework], gap=5), op(SORT[framework], 20, 5)]
    assert found(filled_on_host, steps(between, dur=110, framework=framework)) == []


def test_a_fill_long_before_the_copy() -> None:
    assert len(found(filled_on_host, steps(filled("torch", "aten::zeros", gap=100), dur=250))) == 1
    assert found(filled_on_host, steps(filled("torch", "aten::zeros", gap=101), dur=250)) == []


def test_filled_on_the_device() -> None:
    rows = [*filled("torch", "aten::zeros"), call("launch", 5, 5, 2), kernel("fill", 12, 2, 2)]
    assert found(filled_on_host, steps(rows)) == []


@pytest.mark.parametrize("find", [pageable_copies, round_trips, host_fallback, filled_on_host])
def test_without_a_device(find) -> None:  # type: ignore[no-untyped-def]
    assert "no device work" in why_not(find, steps([op("aten::add", 0, 50)]))
