"""The view ``bounds``: steps without one cause, worked out by hand."""

from __future__ import annotations

from typing import Any

import pytest

from perfkit_core.replay import bounds
from perfkit_core.testing.conformance import check_view
from perfkit_core.trace.model.meta import Device
from tests.support.events import device, host, trace
from tests.support.tables import view_rows, view_table

US = 1000


def step(number: int) -> list[Any]:
    """A step of 1,000 µs: a slow operator, a kernel that the host waits for, and a kernel that it does not wait for."""
    at, first, second = 1000 * US * number, 2 * number + 1, 2 * number + 2
    return [
        host("step", "step", at, 1000 * US, step=number),
        host("slow", "operator", at, 600 * US),
        host("launch", "runtime", at + 600 * US, 10 * US, correlation=first),
        host("sync", "sync", at + 620 * US, 305 * US),
        host("launch", "runtime", at + 930 * US, 10 * US, correlation=second),
        device("k", "kernel", at + 620 * US, 300 * US, correlation=first),
        device("late", "kernel", at + 950 * US, 20 * US, correlation=second),
    ]


TWO = trace([*step(0), *step(1)])


def test_the_step_without_each_cause() -> None:
    rows = {(cause, state): (round(share, 3), without) for cause, state, share, without in
            view_rows("bounds", TWO, "cause state ratio without_ns")}  # fmt: skip
    assert rows == {
        (None, "step"): (1.0, 1_000_000),
        ("slow", "host"): (0.6, 400_000),
        ("k", "compute"): (0.3, 697_000),  # the wait then takes the 2 µs of a call instead of 305
        ("launch", "host"): (0.02, 980_000),  # the kernels start 10 µs earlier, twice
        (None, "latency"): (0.02, 990_000),  # nothing waits for the second kernel
        ("not recorded", "host"): (0.02, 980_000),  # before the synchronisation, and after it
        ("late", "compute"): (0.02, 1_000_000),  # nothing waits for it
    }


def test_what_hides_other_work_saves_less_than_its_share() -> None:
    """The host is busy for 800 µs, and the device for 600 µs. Without either, the other determines the step."""
    hidden = trace(
        [
            host("step", "step", 0, 1000 * US, step=0),
            host("launch", "runtime", 0, 10 * US, correlation=1),
            host("other", "operator", 10 * US, 790 * US),
            host("sync", "sync", 800 * US, 200 * US),
            device("k", "kernel", 10 * US, 980 * US, correlation=1),
        ]
    )
    rows = view_rows("bounds", hidden, "cause ratio without_ns")
    assert rows[:2] == [(None, 1.0, 1_000_000), ("k", pytest.approx(0.98), 802_000)]


def test_what_is_in_flight_has_no_bound() -> None:
    events = [*step(0)[:-1], device("late", "kernel", 1300 * US, 700 * US, correlation=2)]
    events[0] = host("step", "step", 0, 2000 * US, step=0)
    rows = dict(view_rows("bounds", trace(events), "state without_ns"))
    assert rows["in_flight"] is None
    assert rows["step"] is not None


def test_what_limits_kernels() -> None:
    """A product of 1024 × 1024 and 1024 × 2048 needs 4.34 µs at 989 TFLOP/s, and 3.13 µs for 10.5 MB at 3.35 TB/s."""
    types = '["c10::BFloat16","c10::BFloat16"]'
    product = trace(
        [
            host("step", "step", 0, 100 * US, step=0),
            host("aten::mm", "operator", 0, 50 * US, shapes="[[1024,1024],[1024,2048]]", dtypes=types),
            host("launch", "runtime", 10 * US, 5 * US, correlation=1),
            device("gemm", "kernel", 20 * US, 10 * US, correlation=1),
        ]
    ).with_meta(framework="torch", devices=(Device("cuda:0", "NVIDIA H100 80GB HBM3"),))
    limits = dict(zip(*view_table("bounds", product)[["state", "limit_ratio"]].T.to_numpy(), strict=True))
    assert limits["compute"] == pytest.approx(4.34 / 10, rel=0.01)
    assert ("compute", "compute") in view_rows("bounds", product, "state bound")
    assert view_table("bounds", TWO)["bound"].isna().all()  # without shapes


def test_the_view_keeps_the_rules_of_views() -> None:
    check_view(bounds.VIEW, TWO)
