"""Folded stacks, speedscope and pprof: numbers worked out by hand, sums compared with the event table, and formats
checked by independent decoders."""

from __future__ import annotations

import gzip
import json
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from perfkit_core import export, load
from perfkit_core.exporters import WEIGHTS
from perfkit_core.exporters.stacks import frame
from perfkit_core.trace.model.trace import Trace, concat_traces, with_rank
from tests.support import wire
from tests.support.events import device, host, trace

REAL = (
    "torch/h100-vit.json.gz",
    "torch/mi300x-ddp-resnet18-train.json.gz",
    "torch/mtia-inference.json.gz",
    "torch/mi210-gpu-only.json.gz",
    "torch/pairs/resnet50-workers0.json.gz",
    "paddle/cpu-3.3.1/mlp_medium_mem/cycle0.pb.gz",
    "paddle/cpu-3.3.1/static_cond_guard/cycle0.pb",
    "paddle/gpu-synthetic/gpu1.pb",
)
WORK = ("kernel", "memcpy", "memset")


def small() -> Trace:
    """Return two steps of one thread. Each step has a Python frame around an operator. The operator launches a kernel
    of 7 ns and allocates 64 bytes."""
    rows: list[dict[str, Any]] = []
    for step, at in enumerate((0, 100)):
        rows += [
            host(f"Step#{step}", "step", at, 50, step=step),
            host("train.py(3): main", "python", at + 5, 40),
            host("aten::mm", "operator", at + 10, 10),
            host("launch", "runtime", at + 12, 3, correlation=step + 1),
            host("[memory]", "memory", at + 11, 0, bytes=64),
            host("[memory]", "memory", at + 16, 0, bytes=-64),
            device("gemm", "kernel", at + 20, 7, step + 1),
        ]
    return trace([*rows, device("lost", "kernel", 200, 5)])


def folded(found: Trace, path: Path, weight: str | None = None) -> dict[str, int]:
    export(found, path, weight=weight)
    lines = [line.rsplit(" ", 1) for line in path.read_text(encoding="utf-8").splitlines()]
    assert len({stack for stack, _ in lines}) == len(lines)
    return {stack: int(value) for stack, value in lines}


@pytest.mark.parametrize(
    ("weight", "expected"),
    [
        ("cpu", {"1;step": 20, "1;step;train.py(3): main": 60, "1;step;train.py(3): main;aten::mm": 14,
                 "1;step;train.py(3): main;aten::mm;launch": 6}),
        ("device", {"1;step;train.py(3): main;aten::mm;gemm": 14, "no launch recorded;lost": 5}),
        ("calls", {"1;step": 2, "1;step;train.py(3): main": 2, "1;step;train.py(3): main;aten::mm": 2,
                   "1;step;train.py(3): main;aten::mm;launch": 2, "1;step;train.py(3): main;aten::mm;gemm": 2,
                   "no launch recorded;lost": 1}),
        ("bytes", {"1;step;train.py(3): main;aten::mm": 128}),
    ],
)  # fmt: skip
def test_folded_by_hand(weight: str, expected: dict[str, int], tmp_path: Path) -> None:
    assert folded(small(), tmp_path / "t.folded", weight) == expected


def test_a_recorded_stack_comes_before_its_operator_once(tmp_path: Path) -> None:
    stack = "model.py(7): forward;train.py(3): main"
    found = trace([
        host("label", "annotation", 0, 100), host("aten::linear", "operator", 10, 50, stack=stack),
        host("aten::mm", "operator", 20, 10, stack=stack),
    ])  # fmt: skip
    outer = "1;label;train.py(3): main;model.py(7): forward;aten::linear"
    assert folded(found, tmp_path / "t.folded") == {"1;label": 50, outer: 40, f"{outer};aten::mm": 10}


def test_a_host_event_within_device_work_starts_a_stack(tmp_path: Path) -> None:
    """No profiler records this, but a damaged file may contain it. The compiled code needs parents before children."""
    found = trace([device("gemm", "kernel", 0, 7, 1), host("aten::mm", "operator", 10, 10)])
    found = found.with_ints(parent=np.array([-1, 0]))
    assert folded(found, tmp_path / "t.folded", "calls") == {"no launch recorded;gemm": 1, "aten::mm": 1}


def test_separators_in_names_do_not_make_frames(tmp_path: Path) -> None:
    found = trace([host("a;b\nc\r 1", "operator", 0, 10)])
    assert folded(found, tmp_path / "t.folded") == {"1;a:b c  1": 10}


def test_the_reserve_of_the_allocator_is_not_allocated(tmp_path: Path) -> None:
    found = trace([
        host("a", "operator", 0, 10), host("m", "memory", 1, 0, bytes=4096, category="ReservedAllocate"),
        host("m", "memory", 2, 0, bytes=64, category="Allocate"),
        host("m", "memory", 30, 0, bytes=8, category="Allocate"),
    ])  # fmt: skip
    assert folded(found, tmp_path / "t.folded", "bytes") == {"1;a": 64, "1": 8}
    assert Pprof(found, tmp_path / "t.pb.gz").sums()["allocated"] == 72


def test_ranks_are_roots(tmp_path: Path) -> None:
    found = concat_traces([with_rank(trace([host("a", "operator", 0, 5 + rank)]), rank) for rank in (0, 1)])
    assert folded(found, tmp_path / "t.folded") == {"rank 0: 1;a": 5, "rank 1: 1;a": 6}


def test_a_weight_not_recorded_gives_an_empty_file_and_a_reason(tmp_path: Path) -> None:
    path = tmp_path / "t.folded"
    assert "profile_memory" in export(trace([host("a", "operator", 0, 5)]), path, weight="bytes")
    assert path.read_bytes() == b""


def test_without_host_events_stacks_weigh_device_time(tmp_path: Path) -> None:
    path = tmp_path / "t.folded"
    assert "device time" in export(trace([device("k", "kernel", 0, 5)]), path)
    assert path.read_text(encoding="utf-8") == "no launch recorded;k 5\n"


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


@pytest.mark.parametrize("weight", WEIGHTS)
def test_pprof_has_the_same_stacks_as_folded(weight: str, tmp_path: Path) -> None:
    found = small()
    name = {"cpu": "host_self", "device": "device", "calls": "calls", "bytes": "allocated"}[weight]
    mine = {f"{thread};{stack}": values[name] for thread, stack, values in Pprof(found, tmp_path / "t.pb.gz").stacks()}
    theirs = {
        key.replace("train.py(3): main", "main"): v for key, v in folded(found, tmp_path / "f.folded", weight).items()
    }
    assert {key: value for key, value in mine.items() if value} == theirs


def test_pprof_says_where_in_the_code(tmp_path: Path) -> None:
    profile = Pprof(small(), tmp_path / "t.pb.gz")
    assert ("main", "train.py", 3) in profile.places()
    types = ["calls/count", "allocated/bytes", "device/nanoseconds", "host_self/nanoseconds"]
    assert profile.head() == {"types": types, "default": "host_self", "duration": 205}


def test_pprof_keeps_functions_of_one_name_apart(tmp_path: Path) -> None:
    """pprof merges functions with equal names and system names, even of different files. Stack frames that differ only
    in the line of their call are one function."""
    python = [
        host(f"{place}: forward", "python", at, 5) for at, place in enumerate(("a.py(3)", "a.py(9)", "b.py(3)"), 1)
    ]
    stacks = [host("mm", "operator", at, 5, stack=f"c.py({at}): forward") for at in (20, 30)]
    functions = Pprof(trace([*python, *stacks]), tmp_path / "t.pb.gz").written()
    assert functions == {
        ("forward", "a.py(3): forward", "a.py", 3), ("forward", "a.py(9): forward", "a.py", 9),
        ("forward", "b.py(3): forward", "b.py", 3), ("forward", "c.py: forward", "c.py", 0), ("mm", "mm", "", 0),
    }  # fmt: skip


class Pprof:
    """A pprof file, decoded by its wire format. The field numbers are those of google/pprof's profile.proto."""

    def __init__(self, found: Trace, path: Path) -> None:
        export(found, path)
        self.profile = wire.fields(gzip.decompress(path.read_bytes()))
        self.texts = [bytes(text).decode() for text in self.profile[6]]
        assert self.texts[0] == ""
        functions = [wire.fields(one) for one in self.profile[5]]
        self.functions = {one[1][0]: (self._text(one, 2), self._text(one, 4)) for one in functions}
        self.locations = {one[1][0]: wire.fields(one[4][0]) for one in map(wire.fields, self.profile[4])}
        self.types = [wire.fields(one) for one in self.profile[1]]

    def written(self) -> set[tuple[str, str, str, int]]:
        """Return the name, system name, file and first line of the functions with samples, without the thread."""
        named = {self.locations[n][1][0] for one in map(wire.fields, self.profile[2]) for n in wire.packed(one[1])}
        found = [one for one in map(wire.fields, self.profile[5]) if one[1][0] in named]
        assert len(found) == len({one[1][0] for one in found})
        return {(*(self._text(one, field) for field in (2, 3, 4)), one[5][0] if 5 in one else 0) for one in found}

    def _text(self, message: wire.Fields, field: int) -> str:
        return self.texts[message[field][0]] if field in message else ""

    def head(self) -> dict[str, Any]:
        types = [f"{self._text(one, 1)}/{self._text(one, 2)}" for one in self.types]
        return {"types": types, "default": self._text(self.profile, 14), "duration": self.profile[10][0]}

    def places(self) -> set[tuple[str, str, int]]:
        return {(*self.functions[line[1][0]], line[2][0] if 2 in line else 0) for line in self.locations.values()}

    def stacks(self) -> list[tuple[str, str, dict[str, int]]]:
        """Return the thread, the functions (outermost first) and the values by type of each sample."""
        names = [self._text(one, 1) for one in self.types]
        found = []
        for sample in map(wire.fields, self.profile[2]):
            path = [self.functions[self.locations[number][1][0]][0] for number in wire.packed(sample[1])[::-1]]
            label = wire.fields(sample[3][0])
            assert self._text(label, 1) == "thread"
            assert path
            found.append((self._text(label, 2), ";".join(path), dict(zip(names, wire.packed(sample[2]), strict=True))))
        return found

    def sums(self) -> dict[str, int]:
        total: Counter[str] = Counter({self._text(one, 1): 0 for one in self.types})
        for _, _, values in self.stacks():
            total.update(values)
        return dict(total)


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


def test_speedscope_by_hand(tmp_path: Path) -> None:
    found = trace(
        [host("a.py(2): f", "python", 1000, 50), host("b", "operator", 1010, 0), device("k", "kernel", 1020, 90)]
    )
    data = speedscope(found, tmp_path / "t.speedscope.json")
    assert data["$schema"] == "https://www.speedscope.app/file-format-schema.json"
    assert {"name": "f", "file": "a.py", "line": 2} in data["shared"]["frames"]
    thread, stream = data["profiles"]
    assert [(p["type"], p["unit"], p["startValue"], p["endValue"]) for p in (thread, stream)] == [
        ("evented", "nanoseconds", 0, 110)
    ] * 2
    assert [(e["type"], e["at"]) for e in thread["events"]] == [("O", 0), ("O", 10), ("C", 10), ("C", 50)]
    assert [(e["type"], e["at"]) for e in stream["events"]] == [("O", 20), ("C", 110)]
    assert data["activeProfileIndex"] == 0


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
