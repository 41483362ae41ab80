"""Small traces in each format for other tools are the golden ones. Timelines are sound for every viewer, and are read
back row by row."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import msgspec
import numpy as np

from perfkit_core import export, load
from perfkit_core.exporters import WEIGHTS
from perfkit_core.trace.model.trace import Trace, concat_traces
from tests.exporters.decoded import Pprof, assert_same, folded
from tests.support import chrome_check
from tests.support.events import device, host, trace
from tests.support.golden import check_golden


def two_steps() -> Trace:
    """Return two steps of one thread. Each step has a Python frame around an operator. The operator launches a kernel
    of 7 ns and allocates 64 bytes."""
    rows = []
    for step, at in enumerate((0, 100)):
        rows += [
            host(f"Step#{step}", "step", at, 50, step=step),
            host("train.py(3): main", "python", at + 5, 40),
            host("aten::mm", "operator", at + 10, 10),
            host("launch", "runtime", at + 12, 3, correlation=step + 1),
            host("[memory]", "memory", at + 11, 0, bytes=64, total_bytes=64),
            host("[memory]", "memory", at + 16, 0, bytes=-64, total_bytes=0),
            device("gemm", "kernel", at + 20, 7, step + 1),
        ]
    return trace([*rows, device("lost", "kernel", 200, 5)])


def gradients() -> Trace:
    return trace([
        host("linear", "operator", 0, 100, sequence=5, phase="forward"),
        host("addmm", "operator", 10, 80, sequence=5), host("launch", "runtime", 20, 10, correlation=1),
        device("kernel", "kernel", 20, 500, 1), device("second", "kernel", 600, 5, 1),
        host("AddmmBackward", "operator", 1000, 50, sequence=5, phase="backward", tid=2),
        host("mm in it", "operator", 1010, 5, sequence=5, tid=2),
    ])  # fmt: skip


def overlaps() -> Trace:
    return trace([
        device("a", "kernel", 0, 100), device("b", "kernel", 50, 100), device("c", "kernel", 120, 10),
        device("label", "annotation", 0, 200), device("d", "kernel", 60, 200),
    ])  # fmt: skip


def threads() -> Trace:
    run = trace([
        host("train.py(3): step", "python", 0, 100), host("add", "operator", 10, 20),
        host("load", "dataloader", 0, 5, tid=2),
    ])  # fmt: skip
    return Trace(run.events, msgspec.structs.replace(run.meta, thread_names={"-:1:2": "reader"}))


def stacks() -> Trace:
    """Return operators with a recorded stack, and functions of one name. pprof merges functions with equal names and
    system names, even of different files. Frames that differ only in the line of their call are one function."""
    stack = "model.py(7): forward;train.py(3): main"
    python = [host(f"{place}: forward", "python", at, 5) for at, place in ((61, "a.py(3)"), (71, "a.py(9)"))]
    calls = [host("mm", "operator", at, 5, stack=f"c.py({at}): forward") for at in (81, 91)]
    return trace([
        host("label", "annotation", 0, 100), host("aten::linear", "operator", 10, 50, stack=stack),
        host("aten::mm", "operator", 20, 10, stack=stack), *python, *calls,
    ])  # fmt: skip


def reserve() -> Trace:
    """Return a trace in which the allocator reserves memory, which is not allocated."""
    sizes = [(1, 4096, "ReservedAllocate"), (2, 64, "Allocate"), (30, 8, "Allocate")]
    memory = [host("m", "memory", at, 0, bytes=size, category=category) for at, size, category in sizes]
    return trace([host("a", "operator", 0, 10), *memory])


def cases() -> Iterator[tuple[str, Trace]]:
    yield "two steps, and a kernel without a launch", two_steps()
    yield "a launch at the instant of its kernel, and a gradient", gradients()
    early = [host("launch", "runtime", 20, 10, correlation=1), device("early", "kernel", 5, 50, 1)]
    yield "work before its launch has no arrow", trace(early)
    yield "what overlaps has rows of its own", overlaps()
    yield "Python and C++ of a thread, and a named thread", threads()
    launched = [host("launch", "runtime", 0, 10, correlation=1), device("k", "kernel", 5, 50, 1)]
    yield "ranks with equal processes and devices", concat_traces([trace(launched, rank=rank) for rank in (0, 1)])
    yield "recorded stacks, and functions of one name", stacks()
    yield "the reserve of the allocator", reserve()
    yield "separators in names make no frames", trace([host("a;b\nc\r 1", "operator", 0, 10)])


def timeline(path: Path) -> Iterator[str]:
    """Return one line for each event of a Chrome timeline: phase, row, start and duration in µs, name, and arguments of
    counters and names."""
    events = [event for event in chrome_check.events(path) if not event["name"].endswith("_sort_index")]
    for event in events:
        row = f"{event['pid']}/{event.get('tid', '')}"
        times = " ".join(str(event[name]) for name in ("ts", "dur") if name in event)
        more = [str(event["id"])] if "id" in event else []
        more += [json.dumps(event["args"], sort_keys=True)] if event["ph"] in "CM" else []
        yield " ".join(map(str, (event["ph"], row, times, json.dumps(event["name"][:40]), *more)))


def speedscope(path: Path) -> Iterator[str]:
    data = json.loads(path.read_bytes())
    frames = [" ".join(str(value)[:40] for value in frame.values()) for frame in data["shared"]["frames"]]
    yield f"{data['$schema']}, active profile {data['activeProfileIndex']}"
    for profile in data["profiles"]:
        yield f"{profile['name']}: {profile['type']}, {profile['unit']}, {profile['startValue']}–{profile['endValue']}"
        yield "  " + ", ".join(
            f"{event['type']} {event['at']} {frames[event['frame']]!r}" for event in profile["events"]
        )


def pprof(profile: Pprof) -> Iterator[str]:
    yield str(profile.head())
    yield from (f"{thread}: {stack[:80]!r} {values}" for thread, stack, values in profile.stacks())
    yield "functions: " + ", ".join(
        str((name[:40], system[:40], *rest)) for name, system, *rest in sorted(profile.written())
    )
    yield f"places: {sorted((name[:40], *rest) for name, *rest in profile.places())}"


def test_formats_are_the_golden_ones(tmp_path: Path) -> None:
    lines: dict[str, list[str]] = {"chrome": [], "folded": [], "speedscope": [], "pprof": []}
    for title, run in cases():
        for each in lines.values():
            each += ["", f"# {title}"]
        export(run, tmp_path / "t.json", keep_host=True)
        chrome_check.check(chrome_check.events(tmp_path / "t.json"))
        assert_same(load(tmp_path / "t.json"), run)
        lines["chrome"] += timeline(tmp_path / "t.json")
        for weight in WEIGHTS:
            stacks = folded(run, tmp_path / "t.folded", weight)
            lines["folded"] += [f"{weight}: {stack[:120]!r} {value}" for stack, value in stacks.items()]
        export(run, tmp_path / "t.speedscope.json")
        lines["speedscope"] += speedscope(tmp_path / "t.speedscope.json")
        lines["pprof"] += pprof(Pprof(run, tmp_path / "t.pb.gz"))
    for name, content in lines.items():
        check_golden(f"exporters/{name}.txt", "\n".join(content[1:]) + "\n")


def test_a_host_event_within_device_work_starts_a_stack(tmp_path: Path) -> None:
    """No profiler records this, but a damaged file may contain it. The compiled code needs parents before children."""
    run = trace([device("gemm", "kernel", 0, 7, 1), host("aten::mm", "operator", 10, 10)])
    run = run.with_ints(parent=np.array([-1, 0]))
    assert folded(run, tmp_path / "t.folded", "calls") == {"no launch recorded;gemm": 1, "aten::mm": 1}


def test_a_weight_not_recorded_gives_an_empty_file_and_a_reason(tmp_path: Path) -> None:
    path = tmp_path / "t.folded"
    assert "profile_memory" in export(trace([host("a", "operator", 0, 5)]), path, weight="bytes")
    assert path.read_bytes() == b""


def test_without_host_events_stacks_weigh_device_time(tmp_path: Path) -> None:
    path = tmp_path / "t.folded"
    assert "device time" in export(trace([device("k", "kernel", 0, 5)]), path)
    assert path.read_text(encoding="utf-8") == "no launch recorded;k 5\n"
