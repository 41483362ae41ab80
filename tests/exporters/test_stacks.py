"""Folded stacks, speedscope and pprof of recordings add up to the event table, and stacks that are too deep are cut."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest

from perfkit_core import export, load
from perfkit_core.exporters import WEIGHTS
from perfkit_core.exporters.stacks import frame
from perfkit_core.trace.model.trace import Trace
from tests.exporters.decoded import Pprof, folded
from tests.support.events import host, trace

REAL = (
    "torch/h100-vit.json.gz",
    "torch/mtia-inference.json.gz",
    "torch/mi210-gpu-only.json.gz",
    "paddle/cpu-3.3.1/mlp_medium_mem/cycle0.pb.gz",
    "paddle/cpu-3.3.1/static_cond_guard/cycle0.pb",
    "paddle/gpu-synthetic/gpu1.pb",
)
WORK = ("kernel", "memcpy", "memset")


def sums(found: Trace) -> dict[str, int]:
    """Return the four weights, computed directly from the table."""
    table = found.to_pandas()
    work, memory = table["kind"].isin(WORK), table["kind"] == "memory"
    return {
        "cpu": int(table["self_ns"].sum()),
        "device": int(table.loc[work, "dur_ns"].sum()),
        "calls": int((work | table["self_ns"].notna()).sum()),
        "bytes": int(table.loc[memory, "bytes"].clip(lower=0).sum()),
    }


@pytest.mark.parametrize("file", REAL)
def test_stacks_of_real_traces_add_up_to_the_event_table(file: str, traces: Path, tmp_path: Path) -> None:
    found = load(traces / file)
    expected = sums(found)
    for weight in WEIGHTS:
        assert sum(folded(found, tmp_path / "t.folded", weight).values()) == expected[weight], weight
    profile = Pprof(found, tmp_path / "t.pb.gz")
    assert profile.sums() == {"host_self": expected["cpu"], "device": expected["device"], "calls": expected["calls"],
                              "allocated": expected["bytes"]}  # fmt: skip


def speedscope(found: Trace, path: Path) -> dict[str, Any]:
    export(found, path)
    return json.loads(path.read_bytes())


def spans(profile: dict[str, Any], frames: list[dict[str, Any]]) -> Counter[tuple[str, int, int]]:
    """Return the name, start and end of each pair of open and close events. Check that times ascend and that the events
    balance."""
    found: Counter[tuple[str, int, int]] = Counter()
    stack: list[tuple[int, int]] = []
    last = profile["startValue"]
    for event in profile["events"]:
        assert last <= event["at"] <= profile["endValue"]
        last = event["at"]
        if event["type"] == "O":
            stack.append((event["frame"], event["at"]))
        else:
            opened, start = stack.pop()
            assert (event["type"], opened) == ("C", event["frame"])
            found[frames[opened]["name"], start, event["at"]] += 1
    assert not stack
    return found


@pytest.mark.parametrize("file", REAL)
def test_speedscope_has_every_span_of_real_traces(file: str, traces: Path, tmp_path: Path) -> None:
    found = load(traces / file)
    data = speedscope(found, tmp_path / "t.speedscope.json")
    mine: Counter[tuple[str, int, int]] = Counter()
    for profile in data["profiles"]:
        mine += spans(profile, data["shared"]["frames"])
    table = found.to_pandas()
    table = table[~(table["kind"].isin(["memory", "counter"]) & (table["dur_ns"] == 0))]
    start = table["start_ns"] - int(found.ints("start_ns").min())
    names = [frame(name).name for name in table["name"]]
    assert mine == Counter(zip(names, start, start + table["dur_ns"], strict=True))
    assert data["profiles"][data["activeProfileIndex"]]["events"]


@pytest.mark.parametrize(
    ("text", "name", "file", "line"),
    [
        ("torch/nn/modules/linear.py(114): forward", "forward", "torch/nn/modules/linear.py", 114),
        ('File "/a b/train.py", line 3, in main', "main", "/a b/train.py", 3),
        ("train.py:3 main", "main", "train.py", 3),
        ("aten::add", "aten::add", None, None),
        ("void kernel<float>(int): x", "void kernel<float>(int): x", None, None),
        ("", "", None, None),
    ],
)
def test_frames_have_name_file_and_line(text: str, name: str, file: str | None, line: int | None) -> None:
    assert frame(text) == (text, name, file, line)


def test_stacks_far_deeper_than_pythons_own_limit(tmp_path: Path) -> None:
    deep = 3000
    found = trace([host(f"f{i}", "python", i, 2 * (deep - i)) for i in range(deep)])
    lines = folded(found, tmp_path / "t.folded")
    assert max(stack.count(";") for stack in lines) == deep
    assert sum(lines.values()) == 2 * deep
    depth: defaultdict[int, int] = defaultdict(int)
    for _, stack, _ in Pprof(found, tmp_path / "t.pb.gz").stacks():
        depth[stack.count(";")] += 1
    assert set(depth.values()) == {1}


@pytest.mark.parametrize(("most", "depth"), [(10**9, 100), (5150, 100), (5149, 99), (989, 43), (988, 42), (2, 1)])
def test_stacks_are_cut_where_complete_ones_would_be_too_large(
    most: int, depth: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """100 events lie inside each other. Up to depth d, their stacks have d * (d + 3) / 2 frames with the thread. No
    weight is lost."""
    found = trace([host("f", "python", number, 2 * (100 - number)) for number in range(100)])
    monkeypatch.setattr("perfkit_core.exporters.folded._MAX_CHARACTERS", 2 * most)  # a frame takes two characters: "f;"
    monkeypatch.setattr("perfkit_core.exporters.pprof._MAX_FRAMES", most)
    lines = folded(found, tmp_path / "t.folded")
    assert max(stack.count(";") for stack in lines) == depth
    assert sum(lines.values()) == sums(found)["cpu"]
    profile = Pprof(found, tmp_path / "t.pb.gz")
    assert max(stack.count("f") for _, stack, _ in profile.stacks()) == depth
    assert profile.sums()["host_self"] == sums(found)["cpu"]
    assert profile.sums()["calls"] == 100
    for suffix in ("folded", "pb.gz"):
        note = export(found, tmp_path / f"t.{suffix}")
        assert (f"cut to {depth} levels" in note) == (depth < 100), note
