"""Chrome timelines have exact times, are valid for every viewer, and are read back row by row."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from perfkit_core import export, load
from perfkit_core.api import summarize
from perfkit_core.errors import SourceError, UsageError
from perfkit_core.testing.traces import check_trace
from perfkit_core.trace.model.trace import Trace
from tests.exporters.decoded import assert_same
from tests.support import chrome_check
from tests.support.chrome import raw
from tests.support.events import device, host, trace
from tests.support.paths import DATA
from tests.support.small_trace import HOSTILE, small_trace

REAL = (
    "torch/h100-vit.json.gz",
    "torch/mtia-inference.json.gz",
    "torch/cupti-counters.json.gz",
    "torch/mi210-gpu-only.json.gz",
    "torch/alexnet-cuda-sync.json.gz",
    "paddle/gpu-synthetic/gpu1.pb",
    "paddle/gpu-synthetic/gpu1_by_gpu2.6.2.json.gz",
)


def exported(found: Trace, path: Path) -> list[chrome_check.Event]:
    export(found, path, keep_host=True)
    return chrome_check.events(path)


def boxes(found: list[chrome_check.Event]) -> list[chrome_check.Event]:
    return [event for event in found if event["ph"] == "X"]


@pytest.mark.parametrize("file", REAL)
def test_a_real_trace_is_drawn_soundly_and_read_back_whole(file: str, traces: Path, tmp_path: Path) -> None:
    found = load(traces / file)
    events = exported(found, tmp_path / "t.json.gz")
    chrome_check.check(events)
    again = load(tmp_path / "t.json.gz")
    assert_same(again, found)
    check_trace(again, own_tree=True)
    assert len(boxes(events)) + sum(e["ph"] == "i" and "row" in e.get("args", {}) for e in events) == len(found)


@pytest.mark.parametrize("file", ["torch/h100-vit.json.gz", "torch/resnet-param.json.gz"])
def test_names_and_durations_are_those_that_torch_wrote(file: str, traces: Path, tmp_path: Path) -> None:
    """The expected values come from torch's own file, read with json. Times are compared within their second, because
    origins differ."""
    written = [e for e in chrome_check.events(traces / file) if e.get("ph") == "X" and e.get("cat") != "Trace"]
    expected = Counter((e["name"], e["cat"], round(e["ts"] * 1000) % 10**9, round(e["dur"] * 1000)) for e in written)
    path = tmp_path / "t.json"
    events = exported(load(traces / file), path)
    base = json.loads(path.read_bytes())["baseTimeNanoseconds"]
    mine = Counter((e["name"], e["cat"], (chrome_check.ns(e["ts"]) + base) % 10**9, chrome_check.ns(e["dur"]))
                   for e in boxes(events))  # fmt: skip
    assert mine == expected
    assert len(expected) > 1000


def test_python_and_cpp_rows_are_those_of_paddle(tmp_path: Path) -> None:
    """Paddle writes the row of each event as its tid."""
    native = chrome_check.events(DATA / "paddle-mlp.json.gz")
    expected = Counter((e["cat"], e["tid"].partition("(")[2]) for e in native if e.get("ph") == "X")
    export(load(DATA / "paddle-mlp.json.gz"), tmp_path / "t.json")
    events = chrome_check.events(tmp_path / "t.json")
    rows = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"}
    mine = Counter((e["cat"], rows[e["pid"], e["tid"]].partition("(")[2]) for e in events if e["ph"] == "X")
    assert mine == expected
    assert {row for _, row in expected} == {"Python)", "C++)"}


def test_times_are_written_to_the_nanosecond(tmp_path: Path) -> None:
    start = 1_700_000_000_123_456_789
    found = trace([host("a", "operator", start, 2_000_007), host("b", "operator", start + 1_000_001, 9)])
    export(found, tmp_path / "t.json")
    text = (tmp_path / "t.json").read_text(encoding="utf-8")
    assert f'"baseTimeNanoseconds":{start},' in text
    assert '"ts":0.000,"dur":2000.007,' in text
    assert '"ts":1000.001,"dur":0.009,' in text


@pytest.mark.parametrize("name", [HOSTILE, '"},{"ph":"X"', "\\", "a\ud83d\ude00b".encode("utf-16", "surrogatepass")
                                  .decode("utf-16"), "", "\u2028"])  # fmt: skip
def test_hostile_names_are_data(name: str, tmp_path: Path) -> None:
    rows = [host(name, "operator", 0, 10, stack=name or None, module=name or None), host("z", "operator", 20, 1)]
    found = trace(rows)
    events = exported(found, tmp_path / "t.json")
    assert [e["name"] for e in boxes(events)] == [name, "z"]
    assert_same(load(tmp_path / "t.json"), found)


def test_arguments_that_are_no_json_stay_text(tmp_path: Path) -> None:
    events = exported(trace([host("a", "operator", 0, 1, args="{broken"), host("b", "operator", 5, 1, args='{"k":1}')]),
                      tmp_path / "t.json")  # fmt: skip
    assert [e["args"]["recorded"] for e in boxes(events)] == ["{broken", {"k": 1}]


def test_only_some_steps(tmp_path: Path) -> None:
    found = small_trace()
    export(found, tmp_path / "t.json", steps=[1])
    part = load(tmp_path / "t.json")
    assert len(part) == len(found) // 2
    assert set(part.ints("step").tolist()) == {1}
    launches = part.ints("launched_by")
    names = part.events["name"].to_pylist()
    assert [names[row] for row in launches[launches >= 0]] == ["launch", "copy"]
    with pytest.raises(UsageError, match="recorded steps: 0, 1"):
        export(found, tmp_path / "u.json", steps=[7])
    assert not (tmp_path / "u.json").exists()


def test_a_step_is_exported_with_the_device_work_during_it(tmp_path: Path) -> None:
    """Device work that overlaps the step is exported, wherever it was launched. Work that only touches the step, or
    that runs at another time, is not exported."""
    rows = [host("s0", "step", 0, 100), host("launch", "runtime", 10, 5, correlation=1), host("s1", "step", 100, 100),
            host("launch", "runtime", 110, 5, correlation=2), host("s2", "step", 200, 100),
            host("launch", "runtime", 210, 5, correlation=3), device("gone", "kernel", 80, 20, 1),
            device("before", "kernel", 100, 50, 1), device("lost", "kernel", 150, 20),
            device("after", "kernel", 190, 60, 2), device("later", "kernel", 250, 10, 3)]  # fmt: skip
    found = trace(rows)
    export(found, tmp_path / "t.json", steps=[1])
    part = load(tmp_path / "t.json")
    check_trace(part)
    kernels = {row["name"]: (row["launched_by"] >= 0, row["step"]) for row in part.events.to_pylist() if row["stream"]}
    assert kernels == {"before": (False, None), "lost": (False, None), "after": (True, 1)}
    whole, read = (summarize(one, "partition", steps=[1]).to_dict() for one in (found, part))
    assert read == whole
    (message,) = [finding.message for finding in part.quality if finding.code == "launched-outside-steps"]
    assert message.startswith("2 kernels")


def test_an_export_with_a_damaged_time_gives_the_other_events(tmp_path: Path) -> None:
    export(trace([host(f"op{i}", "operator", 10 * i, 5) for i in range(3)]), tmp_path / "t.json")
    text = (tmp_path / "t.json").read_bytes()
    damaged = raw(tmp_path / "damaged.json", text.replace(b'"dur":0.005', b'"dur":"x"', 1))
    with pytest.raises(SourceError, match=r"damaged\.json: a timestamp is not a 64-bit number"):
        load(damaged)
    part = load(damaged, partial=True)
    assert part.events["name"].to_pylist() == ["op1", "op2"]
    assert "events-without-start" in {finding.code for finding in part.quality}


def test_a_cut_export_gives_its_beginning(tmp_path: Path) -> None:
    found = trace([host(f"op{i}", "operator", 10 * i, 5) for i in range(1000)])
    export(found, tmp_path / "t.json")
    cut = raw(tmp_path / "cut.json", (tmp_path / "t.json").read_bytes()[:-20_000])
    with pytest.raises(SourceError, match=r"cut\.json"):
        load(cut)
    part = load(cut, partial=True)
    assert 500 < len(part) < 1000
    assert part.events["name"].to_pylist() == [f"op{i}" for i in range(len(part))]
    assert part.meta.incomplete
    assert "truncated" in {finding.code for finding in part.quality}


@pytest.mark.parametrize(("old", "new", "said"), [
    (b'"version":2', b'"version":3', "newer version of perfkit"),
    (b'"lanes":[', b'"lanes":5,"x":[', "damaged perfkit header"),
])  # fmt: skip
def test_a_header_that_cannot_be_read_is_refused(old: bytes, new: bytes, said: str, tmp_path: Path) -> None:
    export(small_trace(), tmp_path / "t.json")
    path = raw(tmp_path / "u.json", (tmp_path / "t.json").read_bytes().replace(old, new))
    with pytest.raises(SourceError, match=said):
        load(path)


def test_references_to_removed_rows_point_nowhere(tmp_path: Path) -> None:
    rows = [host("gone", "operator", 0, 90), host("a", "operator", 5, 60), host("b", "operator", 10, 50)]
    export(trace(rows), tmp_path / "t.json")
    data = json.loads((tmp_path / "t.json").read_bytes())
    data["traceEvents"] = [event for event in data["traceEvents"] if event["name"] != "gone"]
    part = load(raw(tmp_path / "u.json", json.dumps(data).encode()))
    assert (part.events["name"].to_pylist(), part.ints("parent").tolist()) == (["a", "b"], [-1, 0])


def test_rows_shuffled_by_another_tool_come_back_in_order(tmp_path: Path) -> None:
    found = small_trace()
    export(found, tmp_path / "t.json")
    data = json.loads((tmp_path / "t.json").read_bytes())
    data["traceEvents"].reverse()
    path = raw(tmp_path / "u.json", json.dumps(data).encode())
    assert_same(load(path), found)
