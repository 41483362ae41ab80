"""Times that cannot be are found, counted and named. They are left out of averages, steps and dates."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.data.reports import files
from tests.data.reports.formats import write
from tests.support.scanned import both

pytestmark = pytest.mark.bare

STEP_NS, KERNEL_NS = 990_000, 150_000
BUSY = 600 / 990
KERNELS = [f"kernel_{number}<float>" for number in range(4)]


@pytest.mark.parametrize("name", ["clean.json", "clean_paddle.pb", "clean_nsys.sqlite"])
def test_a_complete_recording_has_no_such_warning(reported, name: str) -> None:
    found = reported(name)
    assert found.findings == []
    assert found.row("device", device="cuda:0")["busy_in_steps_ratio"] == pytest.approx(BUSY)


@pytest.mark.parametrize(
    ("name", "steps", "events"),
    [
        # 13 events per step: the step, 4 operators, 4 launches, 4 kernels
        pytest.param("r04_zero_ts.json", 2, 26, id="second half"),
        pytest.param("r04_first_half.json", 2, 26, id="first half, times since 1970"),
        pytest.param("r04_kernels_only.json", 4, 8, id="kernels only"),
        pytest.param("r04_paddle.pb", 2, 13, id="paddle pb"),
    ],
)
def test_no_start_and_no_duration_is_no_time(reported, name: str, steps: int, events: int) -> None:
    found = reported(name)
    assert [row["dur_ns"] for row in found.rows("steps")] == [STEP_NS] * steps
    assert found.finds(events, r"\btimes?\b")
    averages = {row["name"]: row["avg_device_ns"] for row in found.rows("kernels")}
    assert averages == dict.fromkeys(KERNELS, KERNEL_NS)
    assert {row["avg_cpu_ns"] for row in found.rows("operators") if row["calls"]} == {100_000}


@pytest.mark.parametrize(
    ("name", "kernel", "device"),
    [
        pytest.param("r06_overflow.json", 1, "cuda:0", id="first stream"),
        pytest.param("r06_rocm_second_stream.json", 2, "cuda:0", id="second stream, rollover of 32 bits"),
        pytest.param("r06_second_device.json", 1, "cuda:1", id="second device, less than a step"),
        pytest.param("r06_paddle.pb", 1, "cuda:0", id="paddle pb"),
        pytest.param("r06_paddle.json", 1, "cuda:0", id="paddle json"),
        pytest.param("r06_nsys.sqlite", 1, "cuda:0", id="nsys"),
    ],
)
def test_kernels_that_overlap_on_one_stream_are_reported(reported, name: str, kernel: int, device: str) -> None:
    """The durations of the other calls are true: 150 µs on average, and at most 450 µs for three calls."""
    found = reported(name)
    assert found.finds(None, "overlap", "stream")
    row = found.row("kernels", name=KERNELS[kernel], device=device)
    assert row["avg_device_ns"] == row["max_device_ns"] == KERNEL_NS
    assert row["total_device_ns"] in (2 * KERNEL_NS, 3 * KERNEL_NS)
    assert found.row("device", device=device)["utilisation_ratio"] <= 1


def test_a_last_kernel_that_takes_longer_than_the_recording_is_reported(reported) -> None:
    """No kernel follows. The host's last event ends 8.6 s before the kernel would."""
    found = reported("r06_last_kernel.json")
    assert found.finds(None, r"event|kernel|device", r"long|implausible|100 ?%|duration|overflow|rollover|cannot")
    assert found.row("kernels", name=KERNELS[3])["avg_device_ns"] == KERNEL_NS


@pytest.mark.parametrize(
    ("name", "kernels", "device", "stated"),
    [
        pytest.param("r64c_other_clock.json", 4, "cuda:0", BUSY, id="first step, 27.8 hours before"),
        pytest.param("r64c_paddle.pb", 4, "cuda:0", BUSY, id="paddle pb, last step"),
        pytest.param("r64c_future_device.json", 12, "cuda:1", None, id="second device, 3 years after"),
        pytest.param("r64c_stream_skew.json", 12, "cuda:0", None, id="whole stream, 5 seconds before"),
    ],
)
def test_times_of_another_clock_are_reported(
    reported, name: str, kernels: int, device: str, stated: float | None
) -> None:
    """Where only some kernels have such times, the other steps are busy for 600 of 990 µs. Where all kernels of the
    device have them, the share is unknown, or 60.6 % after a correction of the constant offset."""
    found = reported(name)
    assert found.finds(kernels, "clock|offset|before|after")
    shares = [row["busy_in_steps_ratio"] for row in found.rows("device") if row["device"] == device]
    if stated is None:
        assert all(share in (None, pytest.approx(BUSY)) for share in shares)
    else:
        assert shares == [pytest.approx(stated)]
        assert found.row("partition", category="device_compute")["ratio"] == pytest.approx(stated)


@pytest.mark.parametrize("name", ["r64c_other_clock.json", "r64c_future_device.json", "r64c_stream_skew.json"])
def test_the_date_is_that_of_the_host(reported, perfkit, name: str) -> None:
    """The host's events are of 2025-12-06 05:46:40 UTC."""
    out = perfkit("summary", reported(name).path).out
    assert "2025-12-06" in out.splitlines()[1]


@pytest.mark.parametrize(
    ("name", "steps"),
    [
        pytest.param("r68_open_step.json", [2, 3], id="last, duration 0"),
        pytest.param("r68_first_open.json", [3, 4], id="first, duration 0"),
        pytest.param("r68_no_duration.json", [2, 3], id="without a duration"),
        pytest.param("r68_only_begin.json", [2, 3], id="begin without an end"),
        pytest.param("r68_paddle.json", [2, 3], id="paddle json"),
        pytest.param("r68_paddle.pb", [2, 3], id="paddle pb"),
    ],
)
def test_an_open_step_is_no_step(reported, name: str, steps: list[int]) -> None:
    rows = reported(name).rows("steps")
    assert [(row["step"], row["dur_ns"]) for row in rows] == [(step, STEP_NS) for step in steps]


@pytest.mark.parametrize(
    ("name", "below"),
    [
        pytest.param("r67_overrun.json", {("step", "main"): 2, ("next_batch", "main"): 1}, id="one frame"),
        pytest.param(
            "r67_deeper.json",
            {("next_batch", "main"): 1, ("read", "next_batch"): 1, ("step", "main"): 3, ("loss", "step"): 3},
            id="deeper",
        ),
        pytest.param(
            "r67_second_thread.json",
            {("step", "main"): 1, ("wait", "run"): 1, ("poll", "run"): 1, ("work", "run"): 2},
            id="second thread, two frames",
        ),
    ],
)
def test_recorded_parents_of_python_frames_are_used(reported, name: str, below: dict[tuple[str, str], int]) -> None:
    """The ids of parents in the file are right; the times say that the open frame contains the later calls."""
    calls: dict[tuple[str, str], int] = {}
    path: list[str] = []
    for row in reported(name).rows("code"):
        path[row["depth"] :] = [row["function"]]
        if row["depth"]:
            calls[row["function"], path[-2]] = row["calls"]
    assert calls == below


def test_the_scanner_gives_what_the_reference_reader_gives(tmp_path: Path) -> None:
    names = [name for name in files() if ".json" in name]
    different = {name: text for name in names if (text := both(write(tmp_path / name, files()[name])))}
    assert different == {}
