"""Paddle's JSON compared with the protobuf of the same recording, and files that are damaged or hostile."""

from __future__ import annotations

import itertools
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from perfkit_core.errors import SourceError
from perfkit_core.trace.model.trace import Trace
from perfkit_core.trace.storage.bytestream import head
from perfkit_paddle import json_source
from perfkit_paddle.json_source import offset as offset_ns
from perfkit_paddle.json_source import read_json, refine
from perfkit_paddle.pb_source import read_pb
from tests.support.scanned import NEVER, reading

SAME = ("name", "kind", "tid", "pid", "device", "stream", "correlation", "step", "phase", "op_name", "parent_name")


def pairs(folder: Path) -> list[tuple[Path, Path]]:
    """Return each JSON file with the protobuf of the same recording."""
    found = []
    for path in sorted(folder.glob("**/*.json*")):
        if "stats" not in path.name:
            stem = "gpu1" if path.name.startswith("gpu1") else path.name.split(".json")[0]
            found.append((path, next(iter(path.parent.glob(f"{stem}.pb*")))))
    assert len(found) == 22
    return found


def codes(trace: Trace) -> set[str]:
    return {finding.code for finding in trace.quality}


def _filled(column: pd.Series) -> pd.Series:
    """Return the column with an empty text for null, so that null equals null."""
    column = column.astype(object)
    return column.where(column.notna(), "")


def test_every_json_agrees_with_its_pb(paddle_traces: Path, spans: Any) -> None:
    """All events, fields and parents are equal. Starts and durations differ by no more than the error that the trace
    reports."""
    worst, events = 0, 0
    for path, pb in pairs(paddle_traces):
        trace = read_json(path)
        mine, exact = (
            table[table["kind"] != "memory"].reset_index(drop=True) for table in map(spans, (trace, read_pb(pb)))
        )
        for column in SAME:
            assert (_filled(mine[column]) == _filled(exact[column])).all(), (
                path,
                column,
            )
        assert "not in Paddle's usual order" not in " ".join(f.message for f in trace.quality), path
        start_bound, *_, duration_bound = _reported(trace)
        start = (mine["start_ns"] - exact["start_ns"]).abs().max()
        assert start <= start_bound, path
        assert (mine["dur_ns"] - exact["dur_ns"]).abs().max() <= duration_bound, path
        parents = (mine["parent_start_ns"] - exact["parent_start_ns"]).dropna().abs()
        assert len(parents) > 0
        assert parents.max() <= start_bound, path
        worst, events = max(worst, int(start)), events + len(mine)
    print(f"{events} events, worst start {worst} ns")
    assert worst < 20


def _reported(trace: Trace) -> list[int]:
    """Return the reported time errors in ns: of starts; of starts of memory events, if there are any; and of
    durations."""
    (message,) = [f.message for f in trace.quality if f.code == "rounded-clocks"]
    return [int(number) for number in re.findall(r"by (\d+) ns", message)]


def test_memory_events_agree_but_for_whole_microseconds(paddle_traces: Path) -> None:
    """Memory events have times in whole µs. All other fields equal those in the protobuf."""
    folder = paddle_traces / "cpu-3.3.1" / "mlp_medium_mem"
    columns = ["tid", "address", "bytes", "total_bytes", "device", "args", "category"]
    tables = [trace.to_pandas() for trace in (read_json(folder / "cycle0.json.gz"), read_pb(folder / "cycle0.pb.gz"))]
    mine, exact = (table[table["kind"] == "memory"].astype(object)[["start_ns", *columns]] for table in tables)
    _, bound, _ = _reported(read_json(folder / "cycle0.json.gz"))
    early = np.sort(exact["start_ns"].to_numpy(np.int64)) - np.sort(mine["start_ns"].to_numpy(np.int64))
    assert 900 < early.max() <= bound
    for table in (mine, exact):
        table["start_ns"] = table["start_ns"] // 1000 * 1000
    rows = [sorted(map(repr, table.to_numpy().tolist())) for table in (mine, exact)]
    assert len(rows[0]) == 6500
    assert rows[0] == rows[1]


def test_bytes_beyond_int32_are_unknown(paddle_traces: Path) -> None:
    """Paddle writes the size of a 3 GB copy as a negative number. The size is null, and a finding reports it."""
    for name in ("gpu1_by_3.3.1.json.gz", "gpu1_by_gpu2.6.2.json.gz"):
        trace = read_json(paddle_traces / "gpu-synthetic" / name)
        copies = trace.to_pandas().query("kind == 'memcpy'")
        assert len(copies) == 3
        assert copies["bytes"].isna().all()
        assert set(copies["copy_kind"]) == {"HtoD"}
        assert "overflowed-bytes" in codes(trace)
        assert ("no-device-properties" in codes(trace)) == (not trace.meta.devices)


@pytest.mark.parametrize(
    "args",
    [
        '{"increase_bytes": 5, "bytes": -5}',
        '{"increase_bytes": 5, "bytes": "-5"}',
        '{"bytes": -5, "increase_bytes": 5}',
    ],
)
def test_bytes_beyond_int32_are_reported_by_both_readers(tmp_path: Path, args: str) -> None:
    """This also holds if the column has a value from another argument."""
    event = '{"ph": "X", "cat": "Memcpy", "name": "a[1.0 us]", "pid": 0, "tid": 1, "ts": 1, "dur": 1, "args": %s}'
    path = tmp_path / "t.json"
    path.write_text('{"schemaVersion": "1.0.0", "traceEvents": [%s]}' % ", ".join([event % args] * 3))  # noqa: UP031
    for scan_from in (0, NEVER):
        with reading(scan_from):
            trace = read_json(path)
        assert trace.events["bytes"].to_pylist() == [5] * 3
        assert trace.events["args"].to_pylist() == [None] * 3
        assert "overflowed-bytes" in codes(trace)


def test_launch_shapes_agree_with_the_pb(paddle_traces: Path) -> None:
    """Grid, block, registers and shared memory of every kernel have the same keys and values in both files."""
    folder = paddle_traces / "gpu-synthetic"
    tables = [
        trace.to_pandas() for trace in (read_json(folder / "gpu1_by_gpu2.6.2.json.gz"), read_pb(folder / "gpu1.pb"))
    ]
    texts = [table[table["kind"] == "kernel"].sort_values(["correlation", "name"])["args"] for table in tables]
    for key in ("grid", "block", "registers per thread", "shared memory", "context"):
        mine, exact = (text.str.extract(rf'"{key}":(\[.*?\]|\d+)')[0].tolist() for text in texts)
        assert mine == exact
        assert None not in mine


HOSTILE = ('a"b', "back\\slash", "line\nbreak", 'C:\\new"dir', "tab\there", '"', "</script>")


@pytest.mark.parametrize("name", HOSTILE)
def test_unescaped_names_are_repaired(paddle_traces: Path, tmp_path: Path, name: str) -> None:
    """Paddle does not escape names. Invalid JSON is repaired, and no other event is lost."""
    original = paddle_traces / "versions" / "probe_3.3.1.json.gz"
    text = head(original, 1 << 30).decode()
    path = tmp_path / "hostile.json"
    path.write_text(text.replace('"my_event[', f'"{name}['), encoding="utf-8")
    trace, plain = read_json(path), read_json(original)
    assert len(trace) == len(plain)
    assert trace.rows("name", name).sum() == plain.rows("name", "my_event").sum() > 0
    assert ("repaired-events" in codes(trace)) == (name != "</script>")


def test_a_name_that_is_valid_json_is_reported(paddle_traces: Path, tmp_path: Path) -> None:
    """A name with a quote can end early in a file that is still valid JSON. The name then lacks its duration. This is
    reported."""
    text = head(paddle_traces / "versions" / "probe_3.3.1.json.gz", 1 << 30).decode()
    path = tmp_path / "crafted.json"
    path.write_text(text.replace('"my_event[', '"x", "id": "['), encoding="utf-8")
    assert "names-cut-short" in codes(read_json(path))


def test_a_truncated_file(paddle_traces: Path, tmp_path: Path) -> None:
    """A truncated file raises an error that names the file and the byte. With ``partial``, the readable part is
    returned."""
    text = head(paddle_traces / "versions" / "probe_3.3.1.json.gz", 1 << 30)
    path = tmp_path / "cut.json"
    path.write_bytes(text[: len(text) // 2])
    with pytest.raises(SourceError, match=r"cut\.json.*byte \d+"):
        read_json(path)
    kept = read_json(path, partial=True)
    assert len(kept) > 50
    assert kept.meta.incomplete
    assert "truncated" in codes(kept)


def _float_texts(offset_ns: np.ndarray) -> list[str]:
    return [f"{np.float32(offset) / np.float32(1000):.3f} us" for offset in offset_ns]


@pytest.mark.parametrize("seconds", [0.01, 1, 10, 60, 600])
def test_times_decay_as_documented(seconds: float) -> None:
    """Starts that are computed from both of Paddle's times are within the reported error, which is less than 1 µs."""
    chance = np.random.RandomState(7)
    offset = np.sort(chance.randint(0, int(seconds * 1e9), 20_000)).astype(np.int64)
    offset[0] = 0
    exact = 1_795_229_528_113_015_568 + offset
    start, largest_error = refine(exact // 1000 * 1000, _offsets(_float_texts(offset)))
    error = np.abs(start - exact)
    print(f"{seconds} s: worst {error.max()} ns")
    assert (error <= largest_error).all()
    assert error.max() < 1000
    assert np.ptp((start - exact)[offset < 8_000_000]) <= 1


def test_offsets_before_the_first_host_event_fall_back() -> None:
    """An event before the first host event has an offset near 2**64 ns. Only its time in whole µs is used."""
    whole = np.array([5_000, 9_000], np.int64)
    start, error = refine(whole, _offsets(["18446744073709551.000 us", "4.500 us"]))
    assert (start[0], error[0]) == (5_000, 999)


def _offsets(texts: list[str]) -> np.ndarray:
    """Return the offsets as the reader passes them: negative if unknown."""
    known = (offset_ns(text) for text in texts)
    return np.array([-1 if ns is None else ns for ns in known], np.int64)


def test_offsets_are_read_to_the_nearest_nanosecond() -> None:
    texts = ["1.5 us", "1.0004 us", "1.0005 us", "1.0015 us", "0.000 us", "7 us", "1.5us", "-1 us", "1.5 ms", None, 3]
    assert [offset_ns(text) for text in texts] == [1500, 1000, 1000, 1002, 0, 7000, None, None, None, None, None]


def _random_tree(chance: np.random.RandomState, count: int) -> tuple[list[int], list[int], list[int]]:
    """Return a tree written level by level as parents, starts and ends. Neighbours touch, and many events last only a
    few ns."""
    parent, start, end = [], [], []
    queue = [(-1, 0, 40 * count)]
    while queue and len(parent) < count:
        above, low, high = queue.pop(0)
        cuts = np.sort(chance.randint(low, high + 1, chance.randint(2, 12))) if high > low else []
        for a, b in itertools.pairwise(cuts):
            if b > a:
                queue.append((len(parent), int(a), int(b)))
                parent.append(above)
                start.append(int(a))
                end.append(int(b))
    return parent, start, end


@pytest.mark.parametrize("seed", range(5))
def test_the_order_of_events_gives_the_tree(seed: int) -> None:
    """With exact times, Paddle's order of events determines the tree, whatever the shape of the tree."""
    parent, start, end = _random_tree(np.random.RandomState(seed), 3000)
    zeros, host = np.zeros(len(parent), np.int64), np.ones(len(parent), np.bool_)
    found, odd = json_source.parents(zeros, host, ~host, np.array(start), np.array(end), zeros)
    assert odd == 0
    assert found.tolist() == parent


def test_another_order_is_nested_by_time() -> None:
    """A file in another order also gets a tree, and a finding reports it."""
    start, end = np.array([10, 0, 20]), np.array([15, 40, 30])
    zeros, host = np.zeros(3, np.int64), np.ones(3, np.bool_)
    found, odd = json_source.parents(zeros, host, ~host, start, end, zeros)
    assert (found.tolist(), odd) == ([1, -1, 1], 1)
