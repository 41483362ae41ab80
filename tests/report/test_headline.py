"""The summary sentences of a report, computed from small tables."""

from __future__ import annotations

import pandas as pd

from perfkit_core.report.headline import headline
from tests.support.rendered import rendered

STEPS = pd.DataFrame({"dur_ns": [10_000_000]})
PARTS = pd.DataFrame(
    {
        "category": ["device_compute", "exposed_communication", "exposed_copy", "launch_and_host", "idle"],
        "ratio": pd.array([0.26, 0.66, 0.004, 0.05, None], "Float64"),
    }
)


def devices(*busy: float | None) -> pd.DataFrame:
    names = [f"cuda:{i}" for i in range(len(busy))]
    shares = pd.array(busy, "Float64")
    return pd.DataFrame({"device": names, "busy_ns": pd.array([1] * len(busy), "Int64"), "busy_in_steps_ratio": shares})


def test_the_partition_leads_and_busy_says_what_it_counts() -> None:
    assert rendered(headline({"steps": STEPS, "partition": PARTS, "device": devices(0.926)})) == (
        "The only recorded step took 10.0 ms.",
        "Step time: 66% exposed communication, 26% device compute, 5% launches and other host work while devices are "
        "idle.",
        "cuda:0 is busy for 92.6% of the step time, communication included.",
    )


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
    waits = pd.DataFrame({"category": ["input_wait", "idle"], "ratio": [0.3, 0.7]})
    (_, parts) = rendered(headline({"steps": STEPS, "model": model, "partition": waits}))
    assert parts == "Step time: 70% idle (nothing recorded), 30% input wait."
