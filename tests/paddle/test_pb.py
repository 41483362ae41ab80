"""The protobuf reader compared with the trees that Paddle returned for the same recordings, and damaged files."""

from __future__ import annotations

import gzip
import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfkit_core.errors import SourceError
from perfkit_core.trace.model.trace import Trace
from perfkit_core.trace.storage.bytestream import head
from perfkit_paddle.names import EVENT_TYPES
from perfkit_paddle.pb_rows import rows
from perfkit_paddle.pb_source import read_pb, trace_of
from perfkit_paddle.pb_wire import scan
from perfkit_paddle.plugin import sniff_json, sniff_pb
from tests.support import pb_messages

ROOT = "root node"


@pytest.fixture(scope="module")
def oracles(paddle_traces: Path) -> list[tuple[Path, pd.DataFrame, pd.DataFrame]]:
    """Return protobuf, tree and memory events of each recorded cycle, as Paddle returned them."""
    found = []
    for tree in sorted(paddle_traces.glob("cpu-3.3.1/*/cycle*.tree.csv.gz")):
        cycle = tree.name.removesuffix(".tree.csv.gz")
        (pb,) = tree.parent.glob(f"{cycle}.pb*")
        memory = pd.read_csv(tree.parent / f"{cycle}.mem.csv.gz")
        found.append((pb, pd.read_csv(tree, dtype={"end_ns": "uint64"}), memory))
    assert len(found) == 11
    return found


def _recorded(pb: Path) -> tuple[pd.DataFrame, np.ndarray]:
    """Return two values: the events, and the row of each event's parent. The nodes come first, in the order of Paddle's
    tree. The memory events follow in the order of their nodes."""
    found = rows(scan(_content(pb)).tables).recorded
    assert found.parent is not None
    frame = found.columns.to_pandas()
    nodes = int((frame["kind"] != "memory").sum())
    order = np.array(_depth_first(frame["tid"].tolist(), found.parent.tolist(), nodes), np.int64)
    place = np.append(np.argsort(order), -1)  # the last item maps -1 (no parent) to itself
    keys = place[found.parent[nodes:]], frame["tid"].to_numpy()[nodes:]
    memory = nodes + np.lexsort(keys)
    rows_in_order = np.concatenate([order, memory]).astype(np.int64)
    return frame.iloc[rows_in_order].reset_index(drop=True), place[found.parent[rows_in_order]]


def _depth_first(thread: list[int], parent: list[int], nodes: int) -> list[int]:
    children: dict[Any, list[int]] = {}
    for row in range(nodes):
        children.setdefault(parent[row] if parent[row] >= 0 else ("thread", thread[row]), []).append(row)
    order: list[int] = []
    stack = [row for key in reversed(list(children)) if isinstance(key, tuple) for row in reversed(children[key])]
    while stack:
        order.append(stack.pop())
        stack += reversed(children.get(order[-1], []))
    return order


def _content(path: Path) -> bytes:
    return head(path, 1 << 30)


def test_every_node_equals_paddles_tree(oracles: list[tuple[Path, pd.DataFrame, pd.DataFrame]]) -> None:
    """Order, names, types, threads, times in ns and parents of every node equal Paddle's tree."""
    cells = 0
    for pb, tree, _ in oracles:
        tree = tree[tree["name"] != ROOT].reset_index(drop=True)
        frame, parent = _recorded(pb)
        nodes = frame.iloc[: len(tree)]
        assert (frame["kind"].iloc[len(tree) :] == "memory").all()
        ends = nodes["start_ns"].to_numpy() + nodes["dur_ns"].to_numpy()
        for mine, theirs in (
            ("name", "name"),
            ("category", "type"),
            ("tid", "tid"),
            ("start_ns", "start_ns"),
            ("pid", "process_id"),
        ):
            assert (nodes[mine].astype(object).to_numpy() == tree[theirs].astype(object).to_numpy()).all(), (pb, mine)
        assert (ends == tree["end_ns"].to_numpy().astype(np.int64)).all()
        assert (parent[: len(tree)] == _tree_parents(tree)).all(), pb
        cells += 7 * len(tree)
    print(f"{cells} cells equal")
    assert cells > 300_000


def _tree_parents(tree: pd.DataFrame) -> np.ndarray:
    """Return the row of each node's parent, without the roots (id 0)."""
    row = {(tid, number): at for at, (tid, number) in enumerate(zip(tree["tid"], tree["id"], strict=True))}
    return np.array([row.get(key, -1) for key in zip(tree["tid"], tree["parent"], strict=True)])


def test_assembled_parents_are_the_recorded_ones(
    oracles: list[tuple[Path, pd.DataFrame, pd.DataFrame]], spans: Any
) -> None:
    """The parents in the event table are the recorded parents."""
    for pb, _, _ in oracles:
        frame, parent = _recorded(pb)
        nodes = frame["kind"] != "memory"
        names = frame["name"].astype(object).to_numpy()
        wanted = sorted(
            (n, s, names[p] if p >= 0 else "")
            for n, s, p in zip(names[nodes], frame["start_ns"][nodes], parent[nodes], strict=True)
        )
        table = spans(read_pb(pb))
        table = table[table["kind"] != "memory"]
        got = sorted(zip(table["name"], table["start_ns"], table["parent_name"].fillna(""), strict=True))
        assert got == wanted, pb


def test_every_memory_event_equals_paddles(oracles: list[tuple[Path, pd.DataFrame, pd.DataFrame]]) -> None:
    """Type, time, thread, address, sizes and node of every memory event are equal."""
    total = 0
    for pb, tree, memory in oracles:
        tree = tree[tree["name"] != ROOT].reset_index(drop=True)
        frame, parent = _recorded(pb)
        mine = frame.iloc[len(tree) :].reset_index(drop=True)
        row = {key: at for at, key in enumerate(zip(tree["tid"], tree["id"], strict=True))}
        hosts = [row.get(key, -1) for key in zip(memory["tid"], memory["host_id"], strict=True)]
        memory = memory.assign(host=hosts).sort_values(["tid", "host"], kind="stable")
        assert len(mine) == len(memory)
        total += len(memory)
        if not len(memory):
            continue
        pairs = {"tid": "tid", "category": "type", "start_ns": "timestamp_ns", "address": "addr",
                 "bytes": "increase_bytes", "total_bytes": "current_allocated"}  # fmt: skip
        for column, theirs in pairs.items():
            assert (mine[column].astype(object).to_numpy() == memory[theirs].astype(object).to_numpy()).all(), (
                pb,
                column,
            )
        args = pd.json_normalize(mine["args"].map(json.loads).tolist())
        for column in ("current_reserved", "peak_allocated", "peak_reserved", "place"):
            assert (args[column].to_numpy() == memory[column].to_numpy()).all()
        assert (parent[len(tree) :] == memory["host"].to_numpy()).all()
    print(f"{total} memory events equal")
    assert total > 7000


def test_all_versions_load(paddle_traces: Path) -> None:
    """Files of Paddle 2.6.2 to 3.3.1 are read, and types are identified by name: only 3.x has kernel launches."""
    files = sorted(paddle_traces.glob("versions/*.pb"))
    assert len(files) == 9
    for path in files:
        trace = read_pb(path)
        assert not {f.code for f in trace.quality} & {"unknown-event-types", "skipped-events", "truncated"}, path
        launches = trace.rows("category", "DygraphKernelLaunch", "StaticKernelLaunch")
        named = np.array([name.endswith(" kernel launch") for name in trace.codes("name").values])[
            trace.codes("name").codes
        ]
        assert (launches == named).all()
        assert launches.any() == ("3." in path.name and "pir0" not in path.name), path


def test_device_work_of_the_gpu_profile(paddle_traces: Path) -> None:
    """Kernels, copies and memsets have their launches, devices, streams, sizes and launch shapes."""
    trace = read_pb(paddle_traces / "gpu-synthetic" / "gpu1.pb")
    frame = trace.to_pandas()
    assert frame["kind"].value_counts()[["kernel", "memcpy", "memset", "sync"]].to_dict() == {
        "kernel": 211, "memcpy": 3, "memset": 6, "sync": 4}  # fmt: skip
    work = frame[frame["kind"].isin(["kernel", "memcpy", "memset"])]
    assert (work["device"] == "cuda:0").all()
    assert work["pid"].isna().all()
    launches = frame.loc[work["launched_by"]]
    assert (launches["correlation"].to_numpy() == work["correlation"].to_numpy()).all()
    assert set(launches["kind"]) == {"runtime"}
    copies = work[work["kind"] == "memcpy"]
    assert (copies["bytes"] == 3_000_000_000).all()
    assert set(copies["copy_kind"]) == {"HtoD"}
    assert (
        '"grid":[64,1,1],"block":[256,1,1]'
        in work[work["name"] == "kernel_launched_outside_any_host_event"]["args"].iloc[0]
    )
    (device,) = trace.meta.devices
    assert (device.id, device.name, device.memory_bytes) == ("cuda:0", "NVIDIA A100-SXM4-40GB", 42505273344)


def test_operator_inputs_of_the_old_static_graph(paddle_traces: Path) -> None:
    """Paddle records shapes and stacks at an operator detail. perfkit moves them to the operator."""
    frame = read_pb(paddle_traces / "versions" / "static_3.3.1_pir0_nofeed.pb").to_pandas()
    products = frame[(frame["name"] == "mul") & (frame["kind"] == "operator")]
    assert set(products["shapes"]) == {"[[8,16],[16,32]]", "[[8,32],[32,10]]"}
    assert products["stack"].str.split(";").str[-1].str.contains("static_nofeed.py:").all()


def test_sniffing_tells_paddles_formats(traces: Path) -> None:
    """Each file of Paddle is recognised by exactly one reader, and no file of another profiler is recognised."""
    for path in sorted(traces.glob("paddle/**/*")):
        if ".pb" in path.name or (".json" in path.name and "stats" not in path.name):
            sure = sniff_json(path, head(path)), sniff_pb(path, head(path))
            assert sure == ((0, 2) if ".pb" in path.name else (2, 0)), path
    for path in sorted(traces.glob("torch/**/*.gz"))[:40]:
        assert (sniff_json(path, head(path)), sniff_pb(path, head(path))) == (0, 0), path


def test_errors_name_the_file_and_the_byte(paddle_traces: Path, tmp_path: Path) -> None:
    """A truncated file raises an error with the byte. With ``partial``, the readable part is kept and marked."""
    whole = (paddle_traces / "gpu-synthetic" / "gpu1.pb").read_bytes()
    path = tmp_path / "cut.pb"
    path.write_bytes(whole[:50_000])
    with pytest.raises(SourceError, match=r"cut\.pb: .*byte \d+ of 50000.*--partial"):
        read_pb(path)
    kept = read_pb(path, partial=True)
    assert 200 < len(kept) < len(trace_of(whole, "whole"))
    assert kept.meta.incomplete
    assert "truncated" in {f.code for f in kept.quality}
    path.write_bytes(b"")
    with pytest.raises(SourceError, match="empty"):
        read_pb(path)
    path.write_bytes(gzip.compress(whole)[:12])
    with pytest.raises(SourceError, match="truncated data after byte 0"):
        read_pb(path, partial=True)


def test_damaged_files_never_crash(paddle_traces: Path) -> None:
    """Whatever bytes are changed, cut, removed or added, the result is a Trace or a SourceError. No read leaves the
    buffer."""
    files = ("gpu-synthetic/gpu1.pb", "versions/static_2.6.2_pir0_nofeed.pb", "versions/probe_3.3.1.pb")
    originals = [(paddle_traces / name).read_bytes() for name in files]
    chance = random.Random(20240607)
    outcomes = [_outcome(_damaged(chance, chance.choice(originals)), chance.random() < 0.5) for _ in range(400)]
    assert outcomes.count("trace") > 50
    assert outcomes.count("error") > 50


def _damaged(chance: random.Random, original: bytes) -> bytes:
    data, at = bytearray(original), chance.randrange(len(original))
    kind = chance.choice(("cut", "remove", "insert", "change", "change"))
    if kind == "cut":
        del data[at:]
    elif kind == "remove":
        del data[at : at + chance.randrange(1, 40)]
    elif kind == "insert":
        data[at:at] = chance.randbytes(chance.randrange(1, 20))
    else:
        for _ in range(chance.choice((1, 1, 5, 50))):
            data[chance.randrange(len(data))] = chance.choice((0, 255, 128, 127, chance.randrange(256)))
    return bytes(data)


def _outcome(data: bytes, partial: bool) -> str:
    try:
        assert isinstance(trace_of(data, "damaged", partial), Trace)
    except SourceError as error:
        return "error" if error.message.startswith("damaged: ") else error.message
    return "trace"


@given(st.binary(max_size=200), st.booleans())
def test_arbitrary_bytes_never_crash(data: bytes, partial: bool) -> None:
    """The bytes are not a profile."""
    assert _outcome(b"\x0a\x051.0.2" + data, partial) in ("trace", "error")


@pytest.mark.parametrize(
    ("number", "category"), [(15, "DygraphKernelLaunch"), (16, "StaticKernelLaunch"), (40, "EventType40")]
)
def test_event_types_beyond_the_schema(number: int, category: str) -> None:
    """Paddle 3 writes the types 15 and 16. A type that no version writes has the kind ``other`` and is reported."""
    trace = trace_of(pb_messages.thread(pb_messages.node(0, -1, "new", 10, 30, number)), "made")
    assert trace.to_pandas()[["name", "category", "dur_ns"]].to_numpy().tolist() == [["new", category, 20]]
    assert ("unknown-event-types" in {f.code for f in trace.quality}) == (category not in EVENT_TYPES)
