"""Tests that the scanner and the reference reader return the same table or the same error for any file."""

from __future__ import annotations

import gzip
import json
import random
from pathlib import Path
from typing import Any

import pytest

from perfkit_core.base.runtime import parallel
from perfkit_core.readers.chrome.event_collector import EventCollector
from perfkit_core.readers.chrome.scanned_rows import Portion
from perfkit_core.readers.load import load
from perfkit_torch import source
from tests.fuzz.mutation import mutated
from tests.support.chrome import event, write
from tests.support.paths import DATA
from tests.support.scanned import NEVER, both, difference, reading


def test_every_torch_file_is_read_alike(torch_file: Path) -> None:
    assert not both(torch_file)


def test_every_paddle_file_is_read_alike(paddle_json: Path) -> None:
    assert not both(paddle_json)


@pytest.mark.parametrize("name", ["torch-mlp.json.gz", "paddle-mlp.json.gz"])
@pytest.mark.parametrize("chunk_bytes", [300, 1500, 1 << 16])
def test_the_position_of_chunks_does_not_change_the_result(name: str, chunk_bytes: int) -> None:
    assert not both(DATA / name, chunk_bytes=chunk_bytes)


@pytest.mark.parametrize("name", ["torch-mlp.json.gz", "paddle-mlp.json.gz"])
@pytest.mark.parametrize("threads", [1, 4])
def test_distinct_texts_have_the_order_of_the_file(name: str, threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Dictionaries too are equal, for any assignment of chunks to threads and of events to the two readers."""
    monkeypatch.setattr(parallel, "threads", lambda: threads)
    with reading(NEVER):
        reference = load(DATA / name).events
    for chunk_bytes in (700, 1500, 1500, 1500, 1 << 16):
        with reading(0, chunk_bytes):
            assert load(DATA / name).events.equals(reference)


def test_usual_events_are_scanned(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise all tests would compare the reference reader with itself."""
    for name in ("torch-mlp.json.gz", "paddle-mlp.json.gz"):
        seen = {"scanned": 0, "reference": 0}
        add = EventCollector.add

        def counted(self: EventCollector, events: object, times: object = None, add=add, seen=seen) -> None:  # type: ignore[no-untyped-def]
            if isinstance(events, Portion):
                slow = sum(map(len, events.slow))
                seen["scanned"] += sum(stretch.rows for stretch in events.stretches) - slow
                seen["reference"] += slow
            else:
                seen["reference"] += len(events)  # type: ignore[arg-type]
            add(self, events, times)

        with monkeypatch.context() as patch, reading(0):
            patch.setattr(EventCollector, "add", counted)
            load(DATA / name)
        assert seen["scanned"] > 10 * seen["reference"] > 0


@pytest.mark.parametrize("name", ["torch-mlp.json.gz", "paddle-mlp.json.gz"])
@pytest.mark.parametrize("seed", range(4))
def test_damaged_text_is_read_alike(tmp_path: Path, name: str, seed: int) -> None:
    chance = random.Random(f"{name}{seed}")
    with gzip.open(DATA / name) as file:
        text = file.read()
    begin = text.index(b"[", text.index(b'"traceEvents"')) + 1
    path = tmp_path / "t.json"
    for _ in range(60):
        at = text.index(b'{\n    "', chance.randrange(begin, len(text) - 20_000))
        body = text[at : at + chance.randrange(500, 9000)]
        body = mutated(body[: body.rindex(b"},\n") + 1], chance)
        path.write_bytes(text[:begin] + body + chance.choice([b"]}", b"]}", b'],"x":{"y":[1,2]}}', b"", b"\n]"]))
        found = both(path, chance.random() < 0.5, 1500, chance.choice([1 << 20, 2000]))
        assert not found, (path.read_bytes(), found)


def test_text_that_looks_like_the_end_of_an_event(tmp_path: Path) -> None:
    """Cuts are made where the text looks like a border between two events. Names and lists may contain such text."""
    events = [
        event(f'}},\n {{"ph": "{i}"}}, {{"ph"', i, args={"list": [{"ph": "X"}, {"ph": "Y"}, {"ph": i}], "n": i})
        for i in range(300)
    ]
    path = write(tmp_path / "t.json", events)
    assert not both(path, chunk_bytes=700)
    with reading(0, 700):
        assert source.read(path).events["name"].to_pylist() == [one["name"] for one in events]


def test_arguments_keep_their_text(tmp_path: Path) -> None:
    values = [0.1, 1e-7, 123456789.123456789, -0.0, 10**17, 10**18, 2**63 - 1, 2**64, True, None, 'é\n"', "", -5, 1e22,
              {"b": 1, "a": [1, {}]}, [[], [1, 2.50]], 0.30000000000000004]  # fmt: skip
    args = [{"note": value, "correlation": value, "Input Dims": value} for value in values]
    events = [event("e", i, args=one) for i, one in enumerate(args)]
    path = write(tmp_path / "t.json", events)
    assert not both(path)
    with reading(0):
        notes = [json.loads(text)["note"] for text in source.read(path).events["args"].to_pylist()]
    assert notes == values


@pytest.mark.parametrize("at", [0, 1, 100])
@pytest.mark.parametrize("kind", ["cpu_op", "flow"])
def test_no_cell_of_an_abandoned_event_remains(tmp_path: Path, at: int, kind: str) -> None:
    """The scanner gives up one event in the middle of its arguments, and one flow event has arguments."""
    deep: list[object] = []
    for _ in range(80):
        deep = [deep]
    events = [event("e", i, args={"Ev Idx": i}) for i in range(400)]
    events[at]["args"] = {"Input Dims": [[7, 7]], "bytes": 9, "correlation": 5, "deep": deep}
    for i in range(at, 400, 7) if kind == "flow" else ():  # some of these events are at the end of a chunk
        events[i] |= {"ph": "s", "id": 1, "args": {"Input Dims": [[7, 7]], "bytes": 9, "correlation": 5}}
    path = write(tmp_path / "t.json", events)
    for chunk_bytes in (1 << 11, 1 << 16):
        assert not both(path, chunk_bytes=chunk_bytes, window_bytes=2000)


@pytest.mark.parametrize("text", [r"\x41", r"\u00zz", r"\ud800", "ok"])
def test_arguments_of_flow_events_are_read_alike(tmp_path: Path, text: str) -> None:
    path = write(tmp_path / "t.json", [event("e", i, args={"Ev Idx": i}) for i in range(50)])
    arrow = '{"ph": "s", "id": 1, "name": "ac2g", "cat": "ac2g", "pid": 1, "tid": 1, "ts": 5, "args": {"note": "%s"}}, '
    begin = '"traceEvents": ['
    path.write_text(path.read_text().replace(begin, begin + arrow % text))
    assert not both(path)
    assert not both(path, partial=True)


def test_an_event_with_repeated_keys(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    one = '{"ph":"X","name":"a","pid":1,"tid":1,"ts":1,"dur":1,"args":{"a":1,"b":2,"a":3},"name":"b","ts":5}'
    path.write_text('{"schemaVersion":1,"traceEvents":[' + ",".join([one] * 5) + "]}")
    assert not both(path)
    with reading(0):
        trace = source.read(path)
    assert trace.events["name"].to_pylist() == ["b"] * 5
    assert trace.events["start_ns"].to_pylist() == [5000] * 5
    assert trace.events["args"].to_pylist() == ['{"a":3,"b":2}'] * 5


def test_a_null_argument_identifies_no_device(tmp_path: Path) -> None:
    kernels = [
        event("kernel", i, cat="kernel", pid=i, tid=7, args=args)
        for i, args in enumerate(({"device": None}, {}, {"device": 5}))
    ]
    path = write(tmp_path / "t.json", kernels)
    assert not both(path)
    assert source.read(path).events["device"].to_pylist() == ["cuda:0", "cuda:1", "cuda:5"]


def test_dictionaries_of_names_and_keys_grow(tmp_path: Path) -> None:
    events = [event(f"name {i} {'x' * (i % 700)}", i, args={f"key {i}": i, "Input Dims": [i]}) for i in range(5000)]
    path = write(tmp_path / "t.json", events)
    assert not both(path, chunk_bytes=1 << 15)


def test_a_damaged_gzip_file(tmp_path: Path) -> None:
    packed = (DATA / "torch-mlp.json.gz").read_bytes()
    path = tmp_path / "t.json.gz"
    for size in (len(packed) // 2, len(packed) - 9):
        path.write_bytes(packed[:size])
        assert not both(path, chunk_bytes=4096)
        assert not both(path, partial=True, chunk_bytes=4096)


def test_text_and_file_give_the_same_table(tmp_path: Path) -> None:
    """The same events are given as text, as live captures give them."""
    import numpy as np

    from perfkit_torch.dialect import TorchDialect

    events = [event(f"aten::{i % 7}", i, 3, args={"Ev Idx": i, "Input Dims": [[i % 3]]}) for i in range(900)]
    events[5]["name"] = "ProfilerStep#3"
    times = (np.array([one["ts"] * 1000 for one in events]), np.array([one["dur"] * 1000 for one in events]))
    scanned, decoded = EventCollector(TorchDialect()), EventCollector(TorchDialect())
    text = ",".join(map(json.dumps, events)).encode()
    for first in (0, 300, 600):
        part = slice(first, first + 300)
        body = ",".join(map(json.dumps, events[part])).encode()
        scanned.add_text(body, (times[0][part], times[1][part]))
    from perfkit_core.readers.chrome.dialect import DECODER

    decoded.add(DECODER.decode(b"[" + text + b"]"), times)
    assert scanned.recorded().columns.to_pylist() == decoded.recorded().columns.to_pylist()
    for wrong in (text[:-1], text + b"}", text + b"," + json.dumps(event("more", 1)).encode()):
        with pytest.raises(ValueError, match=r"events|JSON|truncated"):
            scanned.add_text(wrong, times)
    assert scanned.row_count == 0


def test_difference_sees_a_difference(tmp_path: Path) -> None:
    a = source.read(write(tmp_path / "a.json", [event("a", 1)]))
    b = source.read(write(tmp_path / "b.json", [event("b", 1)]))
    assert difference(a, b)
    assert difference("x", a)


def odd(tmp_path: Path, *unusual: str) -> Path:
    """Write a file with fifty usual events, and the texts ``unusual`` after the tenth event."""
    events = [json.dumps(event("e", 10 + i)) for i in range(50)]
    events[10:10] = unusual
    path = tmp_path / "t.json"
    path.write_text('{"schemaVersion": 1, "baseTimeNanoseconds": 0, "traceEvents": [' + ",\n".join(events) + "]}")
    return path


def test_an_event_without_a_start_is_left_out(tmp_path: Path) -> None:
    """Such an event has no position, and would extend the recording to the origin of the clock."""
    path = odd(tmp_path, '{"ph":"X","cat":"cpu_op","name":"lost","pid":1,"tid":1,"dur":5}',
               '{"ph":"i","cat":"cpu_instant_event","name":"lost","pid":1,"tid":1,"args":{"n":"\\u00e9"}}')  # fmt: skip
    assert not both(path)
    trace = source.read(path)
    assert set(trace.events["name"].to_pylist()) == {"e"}
    assert trace.ints("start_ns").min() == 10_000
    assert [f.message[:8] for f in trace.quality if f.code == "events-without-start"] == ["2 of 52 "]


def test_spans_at_zero_without_a_duration_have_no_time(tmp_path: Path) -> None:
    """A recording that counts from 0 may have memory events and counters at 0, and spans that last."""
    zero = [event(f"lost {i}", 0, 0, args={"Ev Idx": i}) for i in range(100)]
    kept = [event("first", 0, 5), event("[memory]", 0, 0, ph="i"), event("op", 9, 0)]
    path = write(tmp_path / "t.json", [*kept, *zero])
    assert not both(path)
    trace = source.read(path)
    assert sorted(trace.events["name"].to_pylist()) == ["[memory]", "first", "op"]
    (text,) = [f.message for f in trace.quality if f.code == "events-without-start"]
    assert text == "100 of 103 events were left out because they have no time"


def test_a_few_events_of_another_clock_do_not_decide_the_clock(tmp_path: Path) -> None:
    epoch_us = 1_765_000_000 * 10**6
    events = [event("op", epoch_us + i, 1) for i in range(9)] + [event("odd", 7, 1)]
    assert source.read(write(tmp_path / "a.json", events)).meta.clock == "epoch"
    assert (
        source.read(write(tmp_path / "b.json", [event("odd", epoch_us, 1), *events[9:] * 3])).meta.clock == "relative"
    )


def test_a_negative_duration_becomes_zero(tmp_path: Path) -> None:
    path = odd(tmp_path, '{"ph":"X","cat":"cpu_op","name":"back","pid":1,"tid":1,"ts":25,"dur":-5}',
               '{"ph":"X","cat":"cpu_op","name":"b\\u00e9ck","pid":1,"tid":1,"ts":26,"dur":-5e0}')  # fmt: skip
    assert not both(path)
    trace = source.read(path)
    assert trace.ints("dur_ns").min() == 0
    assert trace.ints("dur_ns").sum() == 50 * 1000
    assert [f.message[:8] for f in trace.quality if f.code == "negative-durations"] == ["2 events"]


def test_a_counter_is_a_counter(tmp_path: Path) -> None:
    path = odd(tmp_path, '{"ph":"C","name":"power","pid":1,"tid":1,"ts":25,"args":{"watts":3}}')
    assert not both(path)
    events = source.read(path).to_pandas()
    assert events.loc[events["name"] == "power", ["kind", "args"]].to_numpy().tolist() == [["counter", '{"watts":3}']]


@pytest.mark.parametrize("where", ["name", "argument"])
def test_a_lone_surrogate_is_replaced_like_an_invalid_byte(tmp_path: Path, where: str) -> None:
    text = r"a\ud800b\udc00" + r"\\ud800" + r"\ud83d\ude00"
    path = odd(tmp_path, '{"ph":"X","cat":"cpu_op","name":"%s","pid":1,"tid":1,"ts":5,"dur":1,"args":{"n":"%s"}}'
               % ((text, "x") if where == "name" else ("x", text)))  # fmt: skip
    assert not both(path)
    trace = source.read(path)
    first = trace.events.slice(0, 1).to_pylist()[0]
    assert (first["name"] if where == "name" else json.loads(first["args"])["n"]) == "a\ufffdb\ufffd\\ud800\U0001f600"
    assert "repaired-events" in {finding.code for finding in trace.quality}


@pytest.mark.parametrize(
    ("recorded", "shapes", "dtypes"),
    [
        ([], None, None),
        ("[]", None, None),
        ({}, None, None),
        ("", None, None),
        ([[2, 3]], "[[2,3]]", "[[2,3]]"),
        ("[[2, 3]]", "[[2, 3]]", "[[2, 3]]"),
        ("4096", "[[4096]]", '["4096"]'),
        ("2,3;\r\n;\r\n7", "[[2,3],[],[7]]", '["2,3","","7"]'),
        ("float;\r\nNone", '["float","None"]', '["float","None"]'),
    ],
)
def test_shapes_and_types_are_lists_or_null(
    tmp_path: Path, recorded: Any, shapes: str | None, dtypes: str | None
) -> None:
    """torch_npu writes a text with ``;`` between the arguments. Lists without items are no shapes."""
    events = [event("aten::op", i, args={"Input Dims": recorded, "Input type": recorded}) for i in range(3)]
    path = write(tmp_path / "t.json", [*events, event("aten::op", 9, args={"Input Dims": [[1]]})])
    assert not both(path)
    read = load(path).events
    assert read["shapes"].to_pylist() == [shapes] * 3 + ["[[1]]"]
    assert read["dtypes"].to_pylist() == [dtypes] * 3 + [None]
