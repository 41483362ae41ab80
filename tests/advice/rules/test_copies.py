"""Rules 3, 4, 5 and 11: copies between host and device. The outcomes are in ``tests/golden/advice/rules``."""

from __future__ import annotations

import pytest

from perfkit_core.measure.calibration.bench import LARGE, SMALL, Calibration, Measurement, copy_name
from perfkit_core.trace.model.meta import Device
from perfkit_core.trace.model.trace import Trace
from tests.support.advised import Rows, call, copy, kernel, op, steps
from tests.support.rule_cases import Cases, check_rule

TO = {"torch": "aten::to", "paddle": "memcpy_h2d"}
BACK = {"torch": "aten::to", "paddle": "memcpy_d2h"}
FILL = {"torch": "aten::zeros", "paddle": "full dygraph"}
SORT = {"torch": "aten::sort", "paddle": "argsort dygraph"}


def batch(kind: str, count: int = 300, dur: int = 52) -> Rows:
    """Return a copy and 48 µs of other work. The call of the copy takes ``dur``; the copy itself takes 30 µs and ends 2
    µs before the call."""
    return [call("cudaMemcpyAsync", 0, dur, 1), copy(kind, count, dur - 32, 30, 1), op("compute", dur, 100 - dur)]


def test_pageable_copies() -> None:
    """The call takes 5, 8 or 17 of 52 µs if the memory is pinned, followed by 48 µs of other work."""

    def cases(framework: str) -> Cases:
        pageable = steps(batch("HtoD pageable"), framework=framework)
        return {
            "a copy of pageable memory": pageable,
            "a copy of pinned memory": steps(batch("HtoD pinned"), framework=framework),
            "a copy to the host": steps(batch("DtoH pageable"), framework=framework),
            "a copy of unknown memory": steps(batch("HtoD"), framework=framework),
            "the threshold": (pageable, {"pageable_share": 0.52}),
            "just below the threshold": (pageable, {"pageable_share": 0.5199}),
            "without a device": steps([op("aten::add", 0, 50)], framework=framework),
        }

    check_rule("pageable-copies", cases)


SLOW = [call("cudaMemcpyAsync", 0, 52, 1), copy("HtoD pageable", 2_000_000, 2, 400, 1)]
WAIT = call("cudaDeviceSynchronize", 60, 350, kind="sync")


def test_the_speed_of_pinned_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """A copy of 3 MB in 30 µs is faster than any bus, so the factor is 1. A copy of 2 MB in 400 µs reaches 5 bytes/ns,
    of 12 with PCIe 3 and of 36 that are likely for an H100. AMD's compute capabilities mean something else. The
    calibration gives 50 bytes/ns."""

    def on(name: str, **properties: int) -> Trace:
        return steps([*SLOW, WAIT], 410).with_meta(devices=(Device("cuda:0", name, properties=properties),))

    times = ((SMALL, 0.0), (LARGE, LARGE / 50))
    copies = tuple(Measurement(copy_name("htod", size, True), ns, ns, ns, 9) for size, ns in times)
    measured = {"H200": Calibration("fw", "1", "cpu", 2, "H200", 2, "today", copies)}
    monkeypatch.setattr(
        "perfkit_core.measure.calibration.calibrate.newest", lambda framework, device: measured.get(device)
    )
    cases = {
        "faster than any bus": steps(batch("HtoD pageable", 3_000_000)),
        "5 of 12 bytes/ns of PCIe 3": steps([*SLOW, WAIT], 410),
        "other copies of the recording are pinned, and twice as fast": steps(
            [*SLOW, call("cudaMemcpyAsync", 52, 5, 2), copy("HtoD pinned", 2_000_000, 402, 200, 2), WAIT], 610
        ),
        "H100": on("H100", computeMajor=9),
        "A100": on("A100", computeMajor=8),
        "AMD": on("AMD Radeon Graphics", computeMajor=9),
        "a device that was calibrated": on("H200"),
    }
    check_rule("pageable-copies", cases, "-speed")


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


def test_ping_pong_copies() -> None:
    """Without the two copies, 60 of 100 µs remain."""

    def cases(framework: str) -> Cases:
        def case(count: int, between: Rows, back: int | None = None) -> Trace:
            return steps(trip(framework, count, between, back), framework=framework)

        return {
            "4096 bytes that come back unchanged": case(4096, []),
            "other bytes come back": case(4096, [], back=4097),
            "1023 bytes": case(1023, []),
            "1024 bytes": case(1024, []),
            "an operator on the host between the copies": case(131_072, [op(SORT[framework], 20, 30)]),
            "without a device": steps([op("aten::add", 0, 50)], framework=framework),
        }

    check_rule("ping-pong-copies", cases)


def test_cpu_fallback() -> None:
    """On the device, the launch takes 10, 30 or 52 µs, and the device needs less time than this. 30 µs of other work
    follow."""

    def cases(framework: str) -> Cases:
        def case(count: int, operator: str = SORT[framework]) -> Trace:
            return steps(trip(framework, count, [op(operator, 20, 30)]), framework=framework)

        return {
            "a sort on the host": case(131_072),
            "65,535 bytes": case(65_535),
            "65,536 bytes": case(65_536),
            "a view on the host": case(131_072, {"torch": "aten::view", "paddle": "reshape dygraph"}[framework]),
            "without a device": steps([op("aten::add", 0, 50)], framework=framework),
        }

    check_rule("cpu-fallback", cases)


def filled(framework: str, name: str, gap: int = 0, count: int = 4096) -> Rows:
    """Return a fill of 20 µs, a gap of ``gap`` µs, a copy of 30 µs and 50 µs of other work."""
    return [
        op(name, 0, 20),
        op(TO[framework], 20 + gap, 30),
        call("cudaMemcpyAsync", 30 + gap, 15, 1),
        copy("HtoD pageable", count, 35 + gap, 5, 1),
        op("others", 50 + gap, 50),
    ]


def test_fill_then_copy() -> None:
    """On the device, the launch takes 10, 30 or 52 µs instead of 20 and 30 µs."""

    def cases(framework: str) -> Cases:
        def case(name: str, gap: int = 0, more: Rows | None = None) -> Trace:
            dur = 100 + (gap if gap <= 10 else 150)
            return steps([*filled(framework, name, gap), *(more or [])], dur=dur, framework=framework)

        fill = FILL[framework]
        return {
            "zeros that are copied": case(fill),
            "uninitialised memory that is copied": case({"torch": "aten::empty", "paddle": "empty dygraph"}[framework]),
            "a sorted tensor that is copied": case(SORT[framework]),
            "an operator between the fill and the copy": case(fill, 5, [op(SORT[framework], 20, 5)]),
            "100 µs between the fill and the copy": case(fill, 100),
            "101 µs between the fill and the copy": case(fill, 101),
            "a fill on the device": case(fill, more=[call("launch", 5, 5, 2), kernel("fill", 12, 2, 2)]),
            "without a device": steps([op("aten::add", 0, 50)], framework=framework),
        }

    check_rule("fill-then-copy", cases)
