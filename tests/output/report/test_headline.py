"""The summary sentences of a report, computed from small tables."""

from __future__ import annotations

import pandas as pd
import pytest

from perfkit_core.output.report.headline import headline, step_time
from perfkit_core.output.report.verdict import verdict
from tests.support.rendered import rendered

STEPS = pd.DataFrame({"dur_ns": [10_000_000]})
PARTS = pd.DataFrame(
    {
        "category": ["device_compute", "exposed_communication", "exposed_copy", "launch_and_host", "idle"],
        "ratio": pd.array([0.26, 0.66, 0.004, 0.05, None], "Float64"),
        "total_ns": [2_600_000, 6_600_000, 40_000, 500_000, 0],
        "avg_ns": [2_600_000, 6_600_000, 40_000, 500_000, 0],
    }
)


def devices(*busy: float | None) -> pd.DataFrame:
    names = [f"cuda:{i}" for i in range(len(busy))]
    shares = pd.array(busy, "Float64")
    return pd.DataFrame({"device": names, "busy_ns": pd.array([1] * len(busy), "Int64"), "busy_in_steps_ratio": shares})


def test_the_partition_leads_and_busy_says_what_it_counts() -> None:
    assert rendered(headline({"steps": STEPS, "partition": PARTS, "device": devices(0.926)})) == (
        "Communication-bound: 66% of the step time (6.60 ms per step) is communication without computation; devices "
        "compute for 26%.",
        "The only recorded step took 10.0 ms.",
        "Step time: 66% exposed communication, 26% device compute, 5% launches and other host work while devices are "
        "idle.",
        "cuda:0 is busy for 92.6% of the step time, communication included.",
    )


@pytest.mark.parametrize(
    ("ranks", "said"),
    [
        (pd.array([0, 0], "Int64"), "The median of 2 step times is 15.0 ms. The steps took 10.0 ms to 20.0 ms."),
        (
            pd.array([0, 1], "Int64"),
            "The median of 2 step times of 2 ranks is 15.0 ms. The steps took 10.0 ms to 20.0 ms.",
        ),
        (pd.array([None, None], "Int64"), "The median of 2 step times is 15.0 ms. The steps took 10.0 ms to 20.0 ms."),
    ],
)
def test_step_times_of_ranks(ranks: pd.arrays.IntegerArray, said: str) -> None:
    steps = pd.DataFrame({"dur_ns": [10_000_000, 20_000_000], "rank": ranks})
    assert rendered(step_time(steps)) == (said,)


def test_several_devices() -> None:
    def said(*busy: float | None) -> str:
        return rendered(headline({"steps": STEPS, "device": devices(*busy)}))[-1]

    assert said(0.5, 0.25) == "The 2 devices are busy for 25% to 50% of the step time, communication included."
    assert said(0.5, 0.5) == "The 2 devices are busy for 50% of the step time, communication included."
    assert said(None, 0.5) == "cuda:1 is busy for 50% of the step time, communication included."
    assert said(None) == "The only recorded step took 10.0 ms."


def test_without_steps_there_are_no_shares_of_them() -> None:
    assert rendered(headline({"steps": STEPS.head(0), "device": devices(0.9)})) == ()


def test_waiting_for_input_is_said_once() -> None:
    model = pd.DataFrame({"phase": ["step", "dataloader"], "cpu_ratio": [1.0, 0.3]})
    (_, loading) = rendered(headline({"steps": STEPS, "model": model}))
    assert loading == "Data loading takes 30% of the step time."
    times = {"total_ns": [3_000_000, 7_000_000], "avg_ns": [3_000_000, 7_000_000]}
    waits = pd.DataFrame({"category": ["input_wait", "idle"], "ratio": [0.3, 0.7]} | times)
    (_, _, parts) = rendered(headline({"steps": STEPS, "model": model, "partition": waits}))
    assert parts == "Step time: 70% idle (nothing recorded), 30% input wait."


def parts(shares: dict[str, float]) -> pd.DataFrame:
    """The partition of one step of 10 ms."""
    times = [round(share * 10_000_000) for share in shares.values()]
    return pd.DataFrame({"category": list(shares), "ratio": list(shares.values()), "total_ns": times, "avg_ns": times})


@pytest.mark.parametrize(
    ("shares", "said"),
    [
        ({"device_compute": 0.9, "launch_and_host": 0.1}, "Device-bound: devices compute for 90% of the step time"),
        ({"device_compute": 0.6, "input_wait": 0.4}, "Input-bound: 40% of the step time (4.00 ms per step)"),
        (
            {"device_compute": 0.6, "launch_and_host": 0.3, "idle": 0.1},
            "Launch-bound: devices are idle for 40% of the step time",
        ),
        (
            {"device_compute": 0.6, "launch_and_host": 0.1, "idle": 0.3},
            "Host-bound: devices are idle for 40% of the step time",
        ),
        (
            {"device_compute": 0.4, "launch_and_host": 0.3, "input_wait": 0.2, "idle": 0.1},
            "Launch-bound: devices are idle for 60% of the step time (6.00 ms per step)",
        ),
        (
            {"device_compute": 0.2, "launch_and_host": 0.25, "input_wait": 0.3, "idle": 0.25},
            "Input-bound: 30% of the step time",
        ),
        ({"device_compute": 0.6, "exposed_copy": 0.4}, "Copy-bound: for 40% of the step time"),
        ({"compute": 0.9, "framework": 0.1}, "Compute-bound: operators compute for 90% of the step time"),
        ({"compute": 0.5, "framework": 0.3, "idle": 0.2}, "Overhead-bound: for 50% of the step time"),
        ({"compute": 0.5, "framework": 0.1, "idle": 0.4}, "Overhead-bound: for 50% of the step time"),
    ],
)
def test_the_verdict_names_what_limits_the_step(shares: dict[str, float], said: str) -> None:
    (sentence,) = rendered(verdict({"partition": parts(shares)}))
    assert sentence.startswith(said)


def test_without_steps_the_verdict_is_about_the_recording() -> None:
    tables = {"partition": parts({}), "device": devices(0.9, 0.5).assign(busy_ns=[25, 50], span_ns=[100, 100])}
    tables["model"] = pd.DataFrame({"phase": ["dataloader", "forward"], "cpu_ratio": [0.6, 0.4]})
    assert rendered(verdict(tables)) == (
        "Of 2 devices, cuda:1 is busiest: it runs kernels for 50% of the recorded 100 ns.",
        "Data loading takes 60% of the time of all recorded phases.",
    )
    copying = {"partition": parts({}), "device": tables["device"].assign(copy_ns=[90, 95])}
    assert rendered(verdict(copying)) == (
        "Of 2 devices, cuda:1 is busiest: it runs kernels for 50% of the recorded 100 ns, and copies data for 95%.",
    )
    operators = pd.DataFrame({"name": ["a", "b"], "self_cpu_ns": [1, 3], "self_cpu_ratio": [0.25, 0.75]})
    assert rendered(verdict({"partition": parts({}), "operators": operators})) == (
        "b takes the most host time of all operators: 75%.",
    )
