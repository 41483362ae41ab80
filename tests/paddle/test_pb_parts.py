"""The parts of the protobuf reader: texts, parents of nodes in any order, and scans of truncated and damaged files."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfkit_core.base.runtime import parallel
from perfkit_core.trace.model.schema import DEVICE_WORK, MEMORY
from perfkit_core.trace.storage.bytestream import head
from perfkit_paddle import on_trace_ready, pb_rows, pb_wire
from perfkit_paddle.pb_source import NOT_LIVE, Live, finish, trace_of
from perfkit_paddle.pb_table import MISSING, OWNER, Table
from perfkit_paddle.pb_wire import Scan, scan
from tests.support.pb_messages import message, node, number, thread

TEXTS = st.one_of(st.binary(max_size=20), st.sampled_from([b"12345678", b"12345678\x00", b"", b"same", b"\xff"]))


@given(st.lists(st.none() | TEXTS, max_size=60))
def test_texts_are_those_of_the_bytes(values: list[bytes | None]) -> None:
    """Each row has its text, and each distinct text is stored once, in the order of appearance."""
    data = np.frombuffer(b"".join(value or b"" for value in values), np.uint8)
    length = [len(value or b"") for value in values]
    offset = np.cumsum([0, *length])[:-1] if values else []
    known = [value is not None for value in values]
    cells = np.array([np.where(known, column, MISSING) for column in (offset, length)], np.int64).reshape(2, -1)
    found = Table(data, cells, ("name", "name.length")).texts("name")
    assert found.to_pylist() == [None if value is None else value.decode("utf-8", "replace") for value in values]
    distinct = dict.fromkeys(value for value in values if value is not None)
    assert found.dictionary.to_pylist() == [value.decode("utf-8", "replace") for value in distinct]


def parents(*threads: list[tuple[int, int, str, int, int]]) -> dict[str, str | None]:
    """Return the name of each node's parent by the node's name. A node is a tuple of number, parent's number, name,
    start and end."""
    content = b"".join(thread(*(node(*each) for each in nodes)) for nodes in threads)
    frame = trace_of(content, "made").to_pandas()
    names = frame["name"].astype(str).tolist()
    return {name: None if row < 0 else names[row] for name, row in zip(names, frame["parent"], strict=True)}


def test_parents_by_number_in_any_order_of_the_numbers() -> None:
    """Two threads have the same node numbers, in Paddle's order or with gaps. An unknown number gives no parent."""
    usual = [(0, -1, "a", 0, 90), (1, 0, "b", 10, 40), (2, 0, "c", 50, 80), (3, 2, "d", 60, 70)]
    other = [(0, -1, "e", 100, 190), (1, 0, "f", 110, 120)]
    told = {"a": None, "b": "a", "c": "a", "d": "c", "e": None, "f": "e"}
    assert parents(usual, other) == told
    renamed = {-1: -1, 0: 7, 1: 300, 2: 5, 3: 9}
    gaps = [(renamed[number], renamed[parent], *rest) for number, parent, *rest in usual]
    assert parents(gaps, other) == told
    assert parents([*usual[:2], (2, 8, "c", 50, 80), usual[3]], other) == told | {"c": None}


def test_both_ways_to_find_parents_agree(paddle_traces: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In every real file, the parents by node number equal the parents by position in Paddle's order of nodes."""
    hosts = [scan(head(path, 1 << 30)).tables["host"] for path in sorted(paddle_traces.rglob("*.pb*"))]
    by_position = [pb_rows._parent_rows(host) for host in hosts]
    monkeypatch.setattr(pb_rows, "_find_by_position", lambda *nodes: False)
    for host, parents in zip(hosts, by_position, strict=True):
        assert (pb_rows._parent_rows(host) == parents).all()
    assert sum(map(len, hosts)) > 40_000


def test_rows_of_a_damaged_file_end_where_it_breaks() -> None:
    """If a message inside an event is damaged, the events before it are kept, and no later event is read."""
    whole = [node(0, -1, "a", 0, 9), node(1, 0, "b", 1, 2)]
    broken = message(2, number(1, 2) + number(2, 0) + message(3, b"\x0a\x7fshort"))
    found = scan(thread(*whole, broken, whole[1]))
    assert found.problem == "a message is longer than the enclosing message"
    assert found.tables["host"].texts("name").to_pylist() == ["a", "b", None]
    assert found.tables["host"]["id"].tolist() == [0, 1, 2]


def _in_parts(content: bytes, clip: bool, count: int, monkeypatch: Any) -> Scan:
    with monkeypatch.context() as patched:
        patched.setattr(pb_wire, "_PARALLEL_BYTES", 1)
        patched.setattr(parallel, "threads", lambda: count)
        return scan(content, clip)


def test_a_parallel_scan_equals_a_serial_scan(paddle_traces: Path, monkeypatch: Any) -> None:
    """Complete, truncated and damaged files are scanned with one thread and with several. Both scans give the same
    cells, or the same problem at the same byte."""
    draw = random.Random(7)
    parts = problems = 0
    for path in sorted(paddle_traces.rglob("*.pb")):
        content = path.read_bytes()
        for attempt in range(12):
            changed = bytearray(content[: draw.randrange(len(content))] if attempt % 3 == 1 else content)
            if attempt % 3 == 2:
                changed[draw.randrange(len(changed))] ^= 1 << draw.randrange(8)
            one, several = (_in_parts(bytes(changed), attempt % 2 == 0, count, monkeypatch) for count in (1, 5))
            assert (several.problem, several.at) == (one.problem, one.at), (path, attempt)
            for name, table in one.tables.items():
                assert (several.tables[name].cells == table.cells).all(), (path, attempt, name)
                assert several.tables[name].cells.shape == table.cells.shape
            problems += bool(one.problem)
            parts += 1
    assert parts > 100
    assert 20 < problems < parts - 40


def test_the_parts_of_a_scan_are_adjacent(paddle_traces: Path, monkeypatch: Any) -> None:
    """A scan in five parts makes five walks, which begin at different bytes at about equal distances."""
    content = (paddle_traces / "gpu-synthetic" / "gpu1.pb").read_bytes()
    walk, begun = pb_wire._walk, []

    def watched(*arguments: Any) -> Any:
        if len(arguments[8]):  # only the second walk has cells
            begun.append((int(arguments[10][0]), int(arguments[11])))
        return walk(*arguments)

    monkeypatch.setattr(pb_wire, "_walk", watched)
    _in_parts(content, False, 5, monkeypatch)
    begin, end = zip(*sorted(begun), strict=True)
    assert (begin[0], *end) == (0, *begin[1:], len(content))
    assert len(begin) == 5
    assert max(np.diff([*begin, len(content)])) < len(content) / 3


class Result:
    """Replacement for the result of Paddle's profiler. It writes its content into a file."""

    def __init__(self, content: bytes) -> None:
        self.content = content

    def save(self, path: str, form: str) -> None:
        assert form == "pb"
        Path(path).write_bytes(self.content)


@pytest.mark.parametrize("content", [b"some bytes", b""])
def test_saved_cycles_are_read_with_and_without_memory_files(content: bytes, monkeypatch: Any) -> None:
    before = len(os.listdir("/proc/self/fd")) if Path("/proc/self/fd").is_dir() else None  # noqa: PTH208
    assert bytes(on_trace_ready.saved(Result(content))) == content
    monkeypatch.delattr(os, "memfd_create", raising=False)
    assert bytes(on_trace_ready.saved(Result(content))) == content
    if before is not None:
        assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208


PARTS = ("host", "runtime", "device", "memory")


def _of_the_root(table: Table) -> Table:
    """Return the same events with the first node of the tree as their owner."""
    cells = table.cells.copy()
    cells[table.columns.index(OWNER)] = 0
    return Table(table.data, cells, table.columns)


@pytest.mark.parametrize("live", [NOT_LIVE, Live(no_steps=frozenset({0}))])
@pytest.mark.parametrize("left", [(), *((part,) for part in PARTS), ("device", "memory"), PARTS])
def test_a_recording_may_lack_tables(paddle_traces: Path, left: tuple[str, ...], live: Live) -> None:
    """The tree consists of its root only, and no event of the other tables is missing."""
    tables = scan((paddle_traces / "gpu-synthetic" / "gpu1.pb").read_bytes()).tables
    tables["memory"] = scan((paddle_traces / "versions" / "probe_3.3.1.pb").read_bytes()).tables["memory"]
    for name in PARTS:
        none = np.zeros(len(tables[name]), np.bool_)
        none[: name == "host"] = True  # the root
        tables[name] = tables[name] if name in left else tables[name].take(none)
    if "host" not in left:
        tables |= {name: _of_the_root(tables[name]) for name in ("runtime", "memory")}
    found = pb_rows.rows(tables)
    events = found.recorded.columns.num_rows
    trace = finish(tables, found, "here", live=live)
    counts = {"host": 678, "runtime": 224, "device": 220, "memory": 56}
    assert len(trace) == events == sum(counts[name] for name in left)
    assert int(trace.rows("kind", *DEVICE_WORK).sum()) == 220 * ("device" in left)
    assert int(trace.rows("kind", MEMORY).sum()) == 56 * ("memory" in left)
    for name, part in (("stream", "device"), ("address", "memory"), ("correlation", "device")):
        assert int((~trace.events[name].is_null().to_numpy()).sum()) >= counts[part] * (part in left)
    trace.events.validate(full=True)
