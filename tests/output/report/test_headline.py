"""The summary sentences of a report, computed from small tables."""

from __future__ import annotations

import pandas as pd
import pytest

from perfkit_core.output.report.headline import headline, step_time
from perfkit_core.output.report.verdict import verdict
from tests.support.golden import check_golden
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


def parts(shares: dict[str, float]) -> pd.DataFrame:
    """The partition of one step of 10 ms."""
    times = [round(share * 10_000_000) for share in shares.values()]
    return pd.DataFrame({"category": list(shares), "ratio": list(shares.values()), "total_ns": times, "avg_ns": times})


LOADING = pd.DataFrame({"phase": ["step", "dataloader"], "cpu_ratio": [1.0, 0.3]})
HEADLINES: dict[str, dict[str, pd.DataFrame]] = {
    "all tables": {"steps": STEPS, "partition": PARTS, "device": devices(0.926)},
    "two devices": {"steps": STEPS, "device": devices(0.5, 0.25)},
    "two equal devices": {"steps": STEPS, "device": devices(0.5, 0.5)},
    "a device without a share": {"steps": STEPS, "device": devices(None, 0.5)},
    "only a device without a share": {"steps": STEPS, "device": devices(None)},
    "no steps, so no shares of them": {"steps": STEPS.head(0), "device": devices(0.9)},
    "data loading": {"steps": STEPS, "model": LOADING},
    "waiting for input is said once": {
        "steps": STEPS, "model": LOADING, "partition": parts({"input_wait": 0.3, "idle": 0.7}),
    },
}  # fmt: skip
LIMITS: list[dict[str, float]] = [
    {"device_compute": 0.9, "launch_and_host": 0.1},
    {"device_compute": 0.6, "input_wait": 0.4},
    {"device_compute": 0.6, "launch_and_host": 0.3, "idle": 0.1},
    {"device_compute": 0.6, "launch_and_host": 0.1, "idle": 0.3},
    {"device_compute": 0.4, "launch_and_host": 0.3, "input_wait": 0.2, "idle": 0.1},
    {"device_compute": 0.2, "launch_and_host": 0.25, "input_wait": 0.3, "idle": 0.25},
    {"device_compute": 0.6, "exposed_copy": 0.4},
    {"compute": 0.9, "framework": 0.1},
    {"compute": 0.5, "framework": 0.3, "idle": 0.2},
    {"compute": 0.5, "framework": 0.1, "idle": 0.4},
]


def test_headlines_and_verdicts_are_the_golden_ones() -> None:
    """The verdict names what limits the step."""
    lines = []
    for title, tables in HEADLINES.items():
        lines += [f"# {title}", *rendered(headline(tables)), ""]
    for shares in LIMITS:
        lines += [f"# {shares}", *rendered(verdict({"partition": parts(shares)})), ""]
    check_golden("output/headlines.txt", "\n".join(lines))


@pytest.mark.parametrize(("ranks", "of_ranks"), [([0, 0], ""), ([0, 1], " of 2 ranks"), ([None, None], "")])
def test_step_times_of_ranks(ranks: list[int | None], of_ranks: str) -> None:
    steps = pd.DataFrame({"dur_ns": [10_000_000, 20_000_000], "rank": pd.array(ranks, "Int64")})
    said = f"The median of 2 step times{of_ranks} is 15.0 ms. The steps took 10.0 ms to 20.0 ms."
    assert rendered(step_time(steps)) == (said,)


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
