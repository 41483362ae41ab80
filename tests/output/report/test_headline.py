"""The summary sentences of a report, computed from small tables."""

from __future__ import annotations

import pandas as pd
import pytest

from perfkit_core.output.report.headline import headline, step_time
from perfkit_core.output.report.summary import _largest_causes
from perfkit_core.output.report.verdict import verdict, whole_of
from perfkit_core.trace.model.report_data import Section
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
GPU = pd.DataFrame({"device": ["cuda:0"], "busy_ns": pd.array([1], "Int64"), "busy_in_steps_ratio": [0.5]})


def causes(*rows: tuple[int, str, float] | tuple[int, str, float, str]) -> pd.DataFrame:
    """The account of one step of 10 ms: depth, cause, share, and place."""
    cells = [(*row, None)[:4] for row in rows]
    table = pd.DataFrame(cells, columns=["depth", "cause", "ratio", "place"])
    return table.assign(total_ns=(table["ratio"] * 10_000_000).round().astype("int64"))


ACCOUNTS: dict[str, pd.DataFrame] = {
    "devices compute": causes((0, "compute", 0.9), (1, "mm", 0.5, "model.py:3 (forward)"), (1, "add", 0.1)),
    "the loader": causes(
        (0, "host", 0.6), (1, "input", 0.55), (2, "zoom", 0.5, "data.py:1 (read)"), (1, "launch calls", 0.05),
        (0, "compute", 0.4), (1, "mm", 0.4),
    ),
    "many small operators": causes(
        (0, "host", 0.8), (1, "inside operators", 0.7), (2, "mm", 0.1), (2, "add", 0.1), (1, "Python code", 0.1),
        (0, "compute", 0.2),
    ),
    "Python": causes((0, "host", 0.8), (1, "Python code", 0.7), (2, "f", 0.3), (0, "compute", 0.2)),
    "collectives": causes((0, "communication", 0.66), (1, "all_reduce", 0.6), (0, "compute", 0.26), (0, "host", 0.08)),
    "copies": causes((0, "copy", 0.97), (1, "HtoD pinned", 0.95), (0, "compute", 0.03)),
    "both alike": causes((0, "host", 0.48), (1, "Python code", 0.4), (0, "compute", 0.47), (1, "mm", 0.4)),
    "unknown": causes((0, "in_flight", 0.55), (1, "cudaGraphLaunch", 0.5), (0, "compute", 0.45)),
}  # fmt: skip


def test_headlines_and_verdicts_are_the_golden_ones() -> None:
    """The verdict names what limits the step."""
    lines = []
    for title, tables in HEADLINES.items():
        lines += [f"# {title}", *rendered(headline(tables)), ""]
    for title, table in ACCOUNTS.items():
        for where, tables in (("", {"device": GPU}), (", without a device", {})):
            if where and title in ("copies", "unknown"):
                continue
            lines += [f"# {title}{where}", *rendered(verdict({"causes": table, "steps": STEPS, **tables})), ""]
    check_golden("output/headlines.txt", "\n".join(lines))


@pytest.mark.parametrize(("ranks", "of_ranks"), [([0, 0], ""), ([0, 1], " of 2 ranks"), ([None, None], "")])
def test_step_times_of_ranks(ranks: list[int | None], of_ranks: str) -> None:
    steps = pd.DataFrame({"dur_ns": [10_000_000, 20_000_000], "rank": pd.array(ranks, "Int64")})
    said = f"The median of 2 step times{of_ranks} is 15.0 ms. The steps took 10.0 ms to 20.0 ms."
    assert rendered(step_time(steps)) == (said,)


def test_without_steps_the_verdict_is_about_the_recording() -> None:
    tables = {"causes": ACCOUNTS["devices compute"], "device": pd.concat([GPU, GPU])}
    assert rendered(verdict(tables)) == (
        "Device-bound: devices compute for 90% of the recorded time (4.05 ms), mostly mm (50%, in model.py:3 "
        "(forward)).",
    )


def test_the_times_of_a_screen_are_of_one_step_of_one_device() -> None:
    """Steps of 10, 10 and 11 ms on two devices: the median counts, also for the list below the verdict."""
    steps = pd.DataFrame({"step": [0, 1, 2], "dur_ns": [10_000_000, 10_000_000, 11_000_000]})
    _, whole_ns = whole_of(ACCOUNTS["devices compute"], pd.concat([GPU, GPU]), steps)
    assert whole_ns == 10_000_000
    section = Section("causes", "", ACCOUNTS["devices compute"])
    shown = _largest_causes(section, True, False, whole_ns, True).table
    assert shown["step_ns"].tolist() == [5_555_556, 3_333_333, 1_111_111]
    assert shown["total_ns"].tolist() == [5_000_000, 3_000_000, 1_000_000], "the sum of all devices and steps"


def test_steps_without_all_device_work_have_no_verdict() -> None:
    tables = {"causes": ACCOUNTS["the loader"], "steps": STEPS, "partition": parts({}), "device": GPU}
    assert rendered(verdict(tables)) == (
        "Cannot tell what limits it: device work was not recorded completely. Devices work for at least 40% of the "
        "step time.",
    )
