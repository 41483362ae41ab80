"""Files of other writers of the same format are read: nothing of a device becomes host work, and no event vanishes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.data.reports import files
from tests.data.reports.formats import write
from tests.support.scanned import both

STEP_NS, KERNEL_NS = 990_000, 150_000
BUSY = 600 / 990
ASCEND = Path("reports", "r01_ascend_trace_view.json.gz")


@pytest.mark.bare
def test_tasks_of_a_real_recording_on_ascend(reported, traces: Path) -> None:
    """276 tasks of the NPU are busy for 1,790,457 ns of the only step (14,091,970 ns)."""
    path = traces.parent / ASCEND
    if not path.exists():
        pytest.skip(f"no {ASCEND.name}: it is a real recording, which is not part of the project")
    _check_ascend(reported(str(path)), tasks=276, busy_ns=1_790_457, step_ns=14_091_970, steps=1)


@pytest.mark.bare
@pytest.mark.parametrize(
    ("name", "tasks", "busy_us", "steps"),
    [
        pytest.param("r01_ascend_one_stream.json", 6, 2 * (200 + 50 + 30.5), 2, id="starts are texts"),
        # 100 to 550 and 700 to 800 µs of each step
        pytest.param("r01_ascend_two_streams.json.gz", 9, 3 * (450 + 100), 3, id="two streams, an object"),
    ],
)
def test_tasks_below_the_label_of_a_device_are_device_work(
    reported, name: str, tasks: int, busy_us: float, steps: int
) -> None:
    _check_ascend(reported(name), tasks, round(busy_us * 1000), 1_000_000, steps)


def _check_ascend(found, tasks: int, busy_ns: int, step_ns: int, steps: int) -> None:
    assert [row["dur_ns"] for row in found.rows("steps")] == [step_ns] * steps
    device = [row for row in found.rows("device") if not row["device"].startswith("cpu")]
    (copy_ns,) = (row.get("copy_ns") or 0 for row in device)  # kernels and copies do not overlap
    assert [row["busy_ns"] + copy_ns for row in device] == [busy_ns]
    launched_ns = busy_ns - copy_ns
    assert device[0]["busy_in_steps_ratio"] == pytest.approx(launched_ns / (step_ns * steps))
    overview = found.rows("overview")
    assert sum(row["calls"] for row in overview if row["place"] == "device") == tasks
    names = {row["name"] for view in ("kernels", "operators", "annotations") for row in found.rows(view)}
    assert not names & {"Computing", "Free", "Communication", "Communication(Not Overlapped)"}
    assert not any("no device work" in text for text in found.all_findings)


@pytest.mark.bare
@pytest.mark.parametrize("name", ["npu_kernels.json", "other_backend.json", "no_header.json", "list_of_events.json"])
def test_other_back_ends_and_files_without_a_header(reported, name: str) -> None:
    found = reported(name)
    (device,) = [row for row in found.rows("device") if not row["device"].startswith("cpu")]
    assert device["busy_in_steps_ratio"] == pytest.approx(BUSY)
    operators = {row["name"]: row["total_device_ns"] for row in found.rows("operators")}
    assert operators == {f"aten::op{number}": 2 * KERNEL_NS for number in range(4)}


@pytest.mark.bare
@pytest.mark.parametrize(
    ("name", "spans", "products"),
    [
        pytest.param("r03_events_export.json", 132, 9, id="three iterations"),
        pytest.param("r03_remote_thread.json", 88, 6, id="a remote thread"),
    ],
)
def test_an_exported_list_of_events(reported, name: str, spans: int, products: int) -> None:
    """44 spans per iteration, three of them ``aten::mm``: one forward, two backward."""
    found = reported(name)
    assert sum(row["calls"] for row in found.rows("overview")) == spans
    assert found.row("operators", name="aten::mm")["calls"] == products


@pytest.mark.bare
def test_a_recording_of_the_old_autograd_profiler(reported) -> None:
    """Two kernels of 150 µs for mm, and two of 200 µs for add: flows link them to their operators."""
    found = reported("r03_legacy_autograd.json")
    rows = {row["name"]: (row["calls"], row["total_device_ns"]) for row in found.rows("operators")}
    assert rows == {"mm": (2, 300_000), "add": (2, 400_000)}
    assert sum(row["total_device_ns"] for row in found.rows("kernels")) == 700_000


@pytest.mark.live
@pytest.mark.parametrize("profiler", ["torch.profiler", "torch.autograd.profiler"])
def test_a_list_of_events_that_torch_exports(reported, tmp_path: Path, profiler: str) -> None:
    import torch

    path = tmp_path / "events.json"
    weight = torch.ones(4, 4, requires_grad=True)
    profiled = torch.profiler.profile() if profiler == "torch.profiler" else torch.autograd.profiler.profile()
    with profiled as recorded:
        for _ in range(2):
            torch.mm(torch.ones(4, 4), weight).relu().sum().backward()
    events = recorded.events() if profiler == "torch.profiler" else recorded.function_events
    events.export_chrome_trace(str(path))
    names = [event["name"] for event in json.loads(path.read_text())]
    found = reported(str(path))
    assert sum(row["calls"] for row in found.rows("overview")) == len(names)
    assert found.row("operators", name="aten::mm")["calls"] == names.count("aten::mm") >= 4


WORDS = [
    *(
        f"r05b_{word}.json"
        for word in ("na", "nan", "infinity", "inf", "none", "nested", "msvc", "paddle", "paddle_nan")
    ),
    "r05b_undefined.json.gz",
]


@pytest.mark.bare
@pytest.mark.parametrize("name", WORDS)
def test_unquoted_words_are_values(reported, name: str) -> None:
    found = reported(name)
    assert [(row["step"], row["dur_ns"]) for row in found.rows("steps")] == [(2, STEP_NS), (3, STEP_NS)]
    assert {row["calls"] for row in found.rows("kernels") if row["name"].startswith("kernel")} == {2}
    if "nested" not in name and "paddle" not in name:
        assert found.row("overview", kind="memcpy")["calls"] == 1


ENCODED = ["r61_bom.json", "r61_list.json", "r61_compressed.json.gz", "r61_paddle.json", "r61_utf16.json"]


@pytest.mark.bare
@pytest.mark.parametrize("name", ENCODED)
def test_a_byte_order_mark_is_no_content(reported, perfkit, name: str) -> None:
    """UTF-16 may be refused, with one line that names the encoding."""
    found = reported(name)
    code, _, err = perfkit("summary", found.path)
    if name == "r61_utf16.json" and code:
        assert (code, err.count("\n")) == (2, 1)
        assert "UTF-16" in err
        return
    assert [(row["step"], row["dur_ns"]) for row in found.rows("steps")] == [(step, STEP_NS) for step in (2, 3, 4)]
    assert found.row("device", device="cuda:0")["busy_in_steps_ratio"] == pytest.approx(BUSY)


@pytest.mark.bare
def test_the_scanner_gives_what_the_reference_reader_gives(tmp_path: Path) -> None:
    names = [name for name in files() if ".json" in name]
    different = {name: text for name in names if (text := both(write(tmp_path / name, files()[name])))}
    assert different == {}
