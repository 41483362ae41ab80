"""Lost device records are counted and named. Steps in which they lie give no verdict and no advice."""

from __future__ import annotations

import json
import re

import pytest

pytestmark = pytest.mark.bare

STEP_NS, KERNEL_NS = 990_000, 150_000
BUSY = 600 / 990
LOST = [
    # name, launches without a kernel, complete steps
    pytest.param("r41_head_lost.json", 6, [4, 5], id="head"),
    pytest.param("r41_middle_lost.json", 3, [2, 3, 5, 6], id="middle"),
    pytest.param("r41_driver.json", 5, [4, 5], id="launched by the driver"),
    pytest.param("r41_rocm.json", 2, [2, 4, 5], id="hip"),
    pytest.param("r41_paddle.pb", 6, [4, 5], id="paddle pb"),
    pytest.param("r41_paddle.json", 2, [2, 3, 4], id="paddle json, tail"),
    pytest.param("r41_nsys.sqlite", 6, [4, 5], id="nsys"),
]


@pytest.mark.parametrize(("name", "lost", "complete"), LOST)
def test_launches_without_device_work_are_reported(reported, name: str, lost: int, complete: list[int]) -> None:
    """The complete steps are busy for 600 of 990 µs. The others are not counted."""
    found = reported(name)
    assert found.finds(lost, "launch")
    computing = found.row("partition", category="device_compute")
    assert (computing["steps"], computing["ratio"]) == (len(complete), pytest.approx(BUSY))
    assert computing["min_ns"] == computing["max_ns"] == 4 * KERNEL_NS


@pytest.mark.parametrize(("name", "lost", "complete"), LOST[:5])
def test_steps_with_lost_kernels_cause_no_advice(reported, perfkit, name: str, lost: int, complete: list[int]) -> None:
    """The advice is that of a recording that consists of complete steps. Its evidence is from complete steps."""

    def rules(path: object) -> set[str]:
        return {advice["rule"] for advice in json.loads(perfkit("advise", path, "--format", "json").out)["advice"]}

    assert rules(reported(name).path) <= rules(reported("clean.json").path)
    idle = re.findall(r"idle for ([\d.]+)%", perfkit("summary", reported(name).path).out)
    assert all(float(share) <= 39.5 for share in idle)  # 390 of 990 µs


def test_kernels_of_a_second_device_are_lost(reported) -> None:
    """Step 2 has no kernels of cuda:1 (4 lost), step 3 lacks two. Steps 4 and 5 are complete on both devices."""
    found = reported("r41_second_device.json")
    assert found.finds(6, "launch")
    for device in ("cuda:0", "cuda:1"):
        assert found.row("device", device=device)["busy_in_steps_ratio"] == pytest.approx(BUSY)


def test_all_kernels_are_lost(reported, perfkit) -> None:
    """16 launches prove that a device worked. The sentence "no device work was recorded" alone would mislead."""
    found = reported("r41_all_lost.json")
    assert found.finds(16, "launch")
    advice = json.loads(perfkit("advise", found.path, "--format", "json").out)["advice"]
    assert {one["rule"] for one in advice} & {"host-gap", "idle-device", "launch-bound"} == set()


def test_a_replay_with_missing_kernels_is_reported(reported) -> None:
    """Four replays of one graph have 4, 4, 2 and 4 kernels: two records are lost. With 4 each, nothing is."""
    assert reported("graph_partly_lost.json").finds(2, "graph")
    assert not reported("graph_complete.json").finds(None, "graph", "lost|missing|incomplete")


@pytest.mark.parametrize(
    ("name", "active_ns", "rest"),
    [
        pytest.param("r72_warmup_kernels.json", 1_200_000, 4, id="with launches"),
        pytest.param("r72b_warmup_kernels_only.json", 1_200_000, 4, id="without launches"),
        pytest.param("r72_two_steps.json", 1_200_000, 8, id="two steps of warm-up"),
        # two active steps on two devices, and 4 kernels of the warm-up on the second
        pytest.param("r72_second_device.json", 2_400_000, 4, id="second device"),
        pytest.param("r72_paddle.pb", 1_200_000, 4, id="paddle pb"),
    ],
)
def test_kernels_of_the_warm_up_are_not_in_totals(reported, name: str, active_ns: int, rest: int) -> None:
    found = reported(name)
    assert sum(row["total_device_ns"] for row in found.rows("kernels")) == active_ns
    assert sum(row["self_device_ns"] or 0 for row in found.rows("operators")) == active_ns
    assert found.finds(rest, "warm|before the first|outside")
