"""Memory snapshots of torch, compared with a replay of their entries and with torch's own flame graph of a snapshot."""

from __future__ import annotations

import contextlib
import os
import pickle
import pickletools
import tracemalloc
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from hypothesis import strategies as st

from perfkit_core.api import summarize
from perfkit_core.cli.main import main
from perfkit_core.errors import SourceError
from perfkit_core.output.report.pictures import category_section, memory_section
from perfkit_core.readers.load import load
from perfkit_core.testing.conformance import check_round_trip, check_source
from perfkit_core.testing.traces import check_trace
from perfkit_core.trace.model.trace import Trace
from perfkit_torch import plain_pickle
from perfkit_torch.plugin import perfkit_sources
from tests.support.allocator import LIBRARY, MIB, NATIVE, START_US, Allocator, stack, written
from tests.support.golden import check_golden, command_output

SOURCE = next(source for source in perfkit_sources() if source.name == "torch-memory")
MAIN = ("/home/u/train.py", 50, "main")
FORWARD = stack((LIBRARY, 100, "relu"), ("/home/u/model.py", 30, "forward"), MAIN)
STATE = stack((LIBRARY, 77, "_init_group"), MAIN)


def training(kept: int | None = None, ranges: bool = True) -> dict[str, Any]:
    """Return the snapshot of three steps. Each allocates and frees two activations, and leaves 100 bytes. The first
    step also allocates two optimizer states."""
    allocator = Allocator()
    for line in (10, 11):
        allocator.alloc(1000, stack(("/home/u/model.py", line, "__init__"), MAIN))
    for step in range(3):
        allocator.mark(f"ProfilerStep#{step}", "START")
        activations = [allocator.alloc(size, FORWARD) for size in (5000, 6000)]
        if step == 0:
            allocator.mark("Optimizer.step#Adam.step", "START")
            for size in (1000, 1000):
                allocator.alloc(size, STATE)
            allocator.mark("Optimizer.step#Adam.step", "END")
        for address in activations:
            allocator.free(address)
        allocator.alloc(100, stack(MAIN))
        allocator.mark(f"ProfilerStep#{step}", "END")
    if not ranges:
        allocator.ranges.clear()
    return allocator.snapshot(kept)


def table(path: Path, view: str, columns: str, **options: Any) -> list[tuple[Any, ...]]:
    found = summarize(path, view, **options)[columns.split()]
    return [tuple(row) for row in found.astype(object).where(found.notna(), None).to_numpy().tolist()]


def test_the_reader_keeps_the_contract_of_sources(tmp_path: Path) -> None:
    path = written(training(), tmp_path / "snapshot.pickle")
    check_source(SOURCE, path)
    trace = load(path)
    check_trace(trace)
    check_round_trip(trace, tmp_path)
    assert trace.meta.extra["allocator_settings"] == {"PYTORCH_CUDA_ALLOC_CONF": "", "expandable_segments": False}
    assert {finding.code for finding in trace.quality if not finding.note} == set()


def test_reports_of_a_snapshot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """At the peak, in the second step: parameters, optimizer states, the bytes that one step left, and activations.
    Recorded ranges are the steps."""
    monkeypatch.chdir(tmp_path)
    name = written(training(), tmp_path / "snapshot.pickle").name
    views = "memory_places,memory_peak,memory_leaks,memory_steps"
    text = command_output(capsys, ["summary", name])
    text += command_output(capsys, ["summary", name, "--view", views, "--format", "markdown"])
    check_golden("torch/memory_snapshot.txt", text)


def test_the_peak_by_stack_and_by_phase(tmp_path: Path) -> None:
    path = written(training(), tmp_path / "snapshot.pickle")
    by_stack = dict(table(path, "memory_peak", "stack bytes", by=("stack=1",)))
    assert by_stack[f"{LIBRARY}(100): relu"] == 11_000
    assert by_stack[f"{LIBRARY}(77): _init_group"] == 2000
    by_phase = dict(table(path, "memory_peak", "phase bytes", by=("phase",), pattern="train"))
    assert by_phase["optimizer"] == 2000


def test_without_ranges_there_are_no_steps(tmp_path: Path) -> None:
    path = written(training(ranges=False), tmp_path / "snapshot.pickle")
    assert table(path, "memory_places", "peak_bytes") == [(15_200,)]
    assert summarize(path, "memory_leaks").empty


def test_categories_follow_from_the_stacks(tmp_path: Path) -> None:
    """The model makes two parameters. A step keeps 3,000 bytes until the backward pass, which runs without Python
    frames, and makes gradients of the sizes of the parameters. The peak is in the update, which makes the states."""
    packages = "/usr/lib/python3.11/site-packages/torch/"
    module = (f"{packages}nn/modules/module.py", 1700, "_call_impl")
    adam = (f"{packages}optim/adam.py", 77, "_init_group")
    allocator, sizes = Allocator(), (4096, 512)
    for size in sizes:
        allocator.alloc(size, stack(("/home/u/model.py", 10, "__init__"), MAIN))
    for _ in range(2):
        output = allocator.alloc(3000, stack(("/home/u/model.py", 30, "forward"), module, MAIN))
        temporary = allocator.alloc(700, stack(("/home/u/model.py", 31, "forward"), module, MAIN))
        allocator.free(temporary)
        gradients = [allocator.alloc(size, [NATIVE]) for size in sizes]
        allocator.free(output)
        if len(allocator.blocks) == 4:
            for size in (*sizes, *sizes):
                allocator.alloc(size, stack(adam, MAIN))
        update = allocator.alloc(9000, stack(adam, MAIN))
        allocator.free(update)
        for gradient in gradients:
            allocator.free(gradient)
    path = written(allocator.snapshot(), tmp_path / "snapshot.pickle")
    assert dict(table(path, "memory_categories", "category bytes")) == {
        "parameters": 4608, "gradients": 4608, "optimizer_states": 9216, "temporaries": 9000, "unknown": 0,
    }  # fmt: skip
    by_phase = dict(table(path, "memory_peak", "phase bytes", by=("phase",)))
    assert by_phase == {None: 4608, "backward": 4608, "optimizer": 18_216}
    picture = category_section(load(path)).table
    assert picture["activations_bytes"].max() == 3000


def test_memory_that_ran_out_is_a_finding(tmp_path: Path) -> None:
    allocator = Allocator()
    allocator.alloc(10)
    allocator.fail(1 << 30, 5 * MIB)
    (finding,) = (one for one in load(written(allocator.snapshot(), tmp_path / "s.pickle")).quality if not one.note)
    assert finding.message == "out of memory: cuda:0 had 5.00 MiB free, and 1.00 GiB were requested"


@pytest.mark.parametrize("histories", [[[]], [], [[], []]])
def test_the_state_alone_is_one_moment(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], histories: list[list[Any]]
) -> None:
    """With ``enabled="state"``, torch records no history. The level at the end is known, but not the peak."""
    snapshot = training(ranges=False)
    snapshot["device_traces"] = histories
    path = written(snapshot, tmp_path / "snapshot.pickle")
    assert table(path, "memory_places", "allocations peak_bytes growth_bytes end_bytes") == [(7, None, None, 4300)]
    assert sum(row[0] for row in table(path, "memory_peak", "bytes")) == 4300
    assert sum(row[0] for row in table(path, "memory", "allocated_bytes")) == 4300
    found = load(path)
    assert "_record_memory_history()" in warning(found, "no-memory-history")
    assert not len(category_section(found).table)
    assert list(memory_section(found).table) == ["time_ns"]
    assert found.meta.window_ns == (0, 0)
    assert main(["summary", str(path)]) == 0
    assert "peak of" not in capsys.readouterr().out


@pytest.mark.parametrize("segments", [[], [{"address": 0, "total_size": MIB, "device": 0, "blocks": []}]])
def test_a_snapshot_without_blocks_names_the_call_that_records_a_history(tmp_path: Path, segments: list[Any]) -> None:
    path = written({"segments": segments, "device_traces": []}, tmp_path / "snapshot.pickle")
    with pytest.raises(SourceError, match=r"_record_memory_history") as error:
        load(path)
    assert "\n" not in str(error.value)


def test_one_device_of_several_may_have_a_history(tmp_path: Path) -> None:
    """The state of the other device is that of the end of the recording."""
    snapshot, other = training(ranges=False), Allocator(2)
    other.alloc(3 * MIB)
    snapshot["segments"] += other.snapshot()["segments"]
    path = written(snapshot, tmp_path / "snapshot.pickle")
    found = load(path)
    assert table(path, "memory_places", "device peak_bytes end_bytes") == [
        ("cuda:0", 15_200, 4300), ("cuda:2", None, 3 * MIB),
    ]  # fmt: skip
    assert "cuda:2" in warning(found, "no-memory-history")
    assert START_US * 1000 <= found.ints("start_ns").min() <= found.ints("start_ns").max() < 2 * START_US * 1000


def test_a_history_that_begins_late_is_a_note(tmp_path: Path) -> None:
    """max_entries dropped the entries before the last one, or the history was switched on late."""
    whole, last = (load(written(training(kept), tmp_path / "snapshot.pickle")) for kept in (None, 1))
    assert "late-memory-history" not in {finding.code for finding in whole.quality}
    assert "begins with 4.10 KiB allocated" in warning(last, "late-memory-history")


def warning(found: Trace, code: str) -> str:
    return next(finding.message for finding in found.quality if finding.code == code)


def test_snapshots_of_torch_2_0(tmp_path: Path) -> None:
    """They have no times. The sizes and stacks of blocks are in the histories of the blocks."""
    snapshot = training(ranges=False)
    for entry in snapshot["device_traces"][0]:
        del entry["time_us"]
    for block in snapshot["segments"][0]["blocks"]:
        real = {"addr": block["address"], "real_size": block.pop("requested_size"), "frames": block.pop("frames")}
        del block["address"]
        block["history"] = [real] if block["state"] != "inactive" else []
    path = written(snapshot, tmp_path / "old.pickle")
    assert table(path, "memory_places", "peak_bytes end_bytes") == [(15_200, 4300)]
    assert load(path).quality[0].code == "no-times"
    snapshot["device_traces"] = [[]]
    assert sum(row[0] for row in table(written(snapshot, path), "memory_peak", "bytes")) == 4300


def test_only_plain_allocator_settings_are_kept(tmp_path: Path) -> None:
    settings: dict[Any, Any] = {"expandable_segments": True, "max_split_size": 7, (1, 2): 3, "list": [1]}
    settings["itself"] = settings
    path = written(training() | {"allocator_settings": settings}, tmp_path / "s.pickle")
    trace = load(path)
    assert trace.meta.extra["allocator_settings"] == {"expandable_segments": True, "max_split_size": 7}
    check_round_trip(trace, tmp_path)


ACTIONS = st.lists(st.tuples(st.sampled_from(["alloc", "alloc", "free", "cache"]), st.integers(1, 3 * MIB)), min_size=1)
OLD = "(allocated before the recording)"


@hypothesis.settings(max_examples=25)
@hypothesis.given(ACTIONS, st.integers(0, 60), st.integers(0, 1))
def test_levels_and_blocks_equal_a_replay(
    tmp_path_factory: pytest.TempPathFactory, actions: list[tuple[str, int]], dropped: int, device: int
) -> None:
    """The history lacks its first entries. The levels after the other entries are as with all entries. The blocks at
    the peak are those of a replay. The lines of blocks are unknown if the history lacks their allocation, and they
    are freed before the end."""
    allocator = Allocator(device)
    for action, number in (("alloc", MIB), *actions):
        if action == "alloc":
            allocator.alloc(number, stack((f"file{number % 3}.py", number % 2, "f")))
        elif action == "free" and allocator.blocks:
            allocator.free(list(allocator.blocks)[number % len(allocator.blocks)])
        elif action == "cache":
            allocator.empty_cache()
    first = min(dropped, len(allocator.history) - 1)
    live: dict[int, tuple[int, str]] = {}
    level = reserved = 0
    moments: list[tuple[int, int, Counter[str]]] = []
    for number, entry in enumerate([*allocator.history, None]):
        if number >= first and (number == first or allocator.history[number - 1]["action"] != "free_completed"):
            names = Counter[str]()
            for size, line in live.values():
                names[line] += size
            moments.append((level, reserved, names))
        if entry is None:
            break
        size, address = entry["size"], entry["addr"]
        if entry["action"] == "alloc":
            frame = entry["frames"][1]
            known = number >= first or address in allocator.blocks
            live[address] = (size, f"{frame['filename']}:{frame['line']} (f)" if known else OLD)
            level += size
        elif entry["action"] == "free_requested":
            level -= live.pop(address)[0]
        elif entry["action"] != "free_completed":
            reserved += size if entry["action"] == "segment_alloc" else -size
    path = tmp_path_factory.mktemp("snapshot") / "snapshot.pickle"
    written(allocator.snapshot(len(allocator.history) - first), path)
    if len(moments) == 1 and not allocator.blocks:  # the snapshot describes no memory
        return
    curve = table(path, "memory_curve", "allocated_bytes reserved_bytes")[-len(moments) :]
    assert [row[0] for row in curve] == [level for level, _, _ in moments]
    assert [row[1] or 0 for row in curve[1:]] == [reserved for _, reserved, _ in moments[1:]]
    _, _, names = max(moments, key=lambda moment: moment[0])  # the first of equal levels
    assert dict(table(path, "memory_peak", "name bytes")) == names


def test_blocks_at_the_end_equal_torchs_flame_graph(tmp_path: Path) -> None:
    """torch's own reader sums the sizes of the live blocks of a snapshot by stack, outermost frame first."""
    viz = pytest.importorskip("torch.cuda._memory_viz", reason="needs torch: pip install 'perfkit[torch]'")
    snapshot = training()
    snapshot["device_traces"] = [[]]
    theirs = Counter[str]()
    for line in viz.memory(snapshot, format_flamegraph=str).splitlines():
        frames, size = line.rsplit(" ", 1)
        if "active_allocated" in frames and "<gaps>" not in frames:
            theirs[frames.split(";", 2)[2].removesuffix(";CUDACachingAllocator.cpp:1:malloc")] += int(size)
    mine = Counter[str]()
    for text, size in table(written(snapshot, tmp_path / "s.pickle"), "memory_peak", "stack bytes", by=("stack",)):
        frames = [frame.replace("(", ":", 1).replace("): ", ":", 1) for frame in text.split(";")]
        mine[";".join(frame.split("/")[-1] for frame in reversed(frames))] += size
    assert mine == theirs
    assert len(mine) == 4


class _Command:
    def __reduce__(self) -> tuple[Callable[..., int], tuple[str]]:
        return os.system, ("touch hacked",)


KEYS = b"\x80\x04}\x8c\x08segments"
HOSTILE = {
    "command": pickle.dumps({"segments": [], "device_traces": _Command()}),
    "old protocol": KEYS + b"cos\nsystem\n.",
    "memo of 32 GB": KEYS + b"r\xf0\xff\xff\xff.",
    "nested tuples as a key": KEYS + b"\x85" * 300_000 + b"K\x01s.",
    "nested lists": KEYS + b"]" * 300_000 + b"a" * 299_999 + b"s.",
    "text longer than the file": KEYS + b"\x8d" + b"\xff" * 7 + b"\x7f.",
    "text of negative length": KEYS + b"\x8d" + b"\xff" * 8 + b".",
    "empty stack": KEYS + b"sss.",
    "a list as a key": KEYS + b"]K\x01s.",
    "an unknown memo": KEYS + b"h\x07s.",
    "no text": KEYS[:4] + b"\x8c\x08segments\x8c\x02\xff\xfes.",
    "truncated": pickle.dumps({"segments": [], "device_traces": []})[:-5],
    "no snapshot": pickle.dumps({"segments": 1, "device_traces": 2}),
    "no memory": pickle.dumps({"segments": [], "device_traces": []}),
    "a huge number": pickle.dumps(
        {"segments": [], "device_traces": [[{"action": "alloc", "addr": 1, "size": 1 << 70, "time_us": 1}]]}
    ),
    "texts as numbers": pickle.dumps(
        {"segments": [], "device_traces": [[{"action": "alloc", "addr": "1", "size": "1", "time_us": 1}]]}
    ),
    "too many dictionaries": KEYS + b"}" * 2_000_000 + b".",
    "one list many times": pickle.dumps({"segments": [], "device_traces": [[{"action": "alloc"}] * 99] * 99}),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_pickle_is_refused_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "snapshot.pickle"
    path.write_bytes(HOSTILE[name])
    assert main(["summary", str(path)]) == 2
    lines = capsys.readouterr().err.strip().splitlines()
    assert len(lines) == 1
    assert str(path) in lines[0]
    assert not (tmp_path / "hacked").exists()


PIECES = (b"}", b"]", b"}NNs", b"]Na", b"K\x01\x85", b"N", b"(", b")", b"\x94", b"\x8c\x02ab\x94", b"\x8a\x01\x80")


@pytest.mark.parametrize("piece", PIECES)
def test_the_memory_of_the_content_is_bounded_by_the_size_of_the_pickle(piece: bytes) -> None:
    """Without the check, dictionaries take 72 times the size, and dictionaries with an item 58 times."""
    data = KEYS + piece * (3_000_000 // len(piece)) + b"."
    tracemalloc.start()
    try:
        with contextlib.suppress(SourceError):
            plain_pickle.load(data, "snapshot.pickle")
        assert tracemalloc.get_traced_memory()[1] < 22 * len(data)
    finally:
        tracemalloc.stop()


def test_histories_have_few_containers_for_their_size() -> None:
    """The limit is one container in 16 bytes. torch shares equal stacks, but here, each entry has its own."""
    allocator = Allocator()
    for _ in range(1000):
        allocator.free(allocator.alloc(100))
    data = pickle.dumps(allocator.snapshot())
    opcodes = Counter(opcode.name for opcode, _, _ in pickletools.genops(data))
    assert len(data) > 20 * sum(opcodes[name] for name in ("EMPTY_DICT", "EMPTY_LIST", "TUPLE1", "TUPLE2", "TUPLE3"))


@hypothesis.given(st.integers(0, 10**6), st.integers(0, 255))
def test_a_changed_byte_gives_a_trace_or_an_error(tmp_path_factory: pytest.TempPathFactory, at: int, byte: int) -> None:
    data = bytearray(pickle.dumps(training()))
    data[at % len(data)] = byte
    path = tmp_path_factory.mktemp("changed") / "snapshot.pickle"
    path.write_bytes(data)
    with contextlib.suppress(SourceError):
        check_trace(SOURCE.read(path, False))


def test_times_count_from_1970(tmp_path: Path) -> None:
    trace = load(written(training(), tmp_path / "snapshot.pickle"))
    assert int(trace.ints("start_ns")[0]) == (START_US + 7) * 1000
    assert trace.meta.clock == "epoch"
