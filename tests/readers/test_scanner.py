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
from perfkit_core.readers.chrome.event_rows import Portion
from perfkit_core.readers.load import load
from perfkit_torch import source
from tests.fuzz.mutation import mutated
from tests.support.chrome import event, write
from tests.support.paths import DATA
from tests.support.scanned import NEVER, both, difference, reading
from tests.support.tables import check_events


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
@pytest.mark.parametrize("seed", range(2))
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


def test_links_are_read_alike(tmp_path: Path) -> None:
    """Whatever the writer uses as ids. The last of several beginnings with one id counts."""
    ids: list[object] = [5, "6", "07", 0, -4, 2**63 - 1, 2**63, 10**19, "x", "", 1.5, None, [1], "é"]
    flow = {"cat": "async_npu", "name": "torch_to_npu"}
    events = [{"ph": "M", "name": "process_name", "pid": 800, "args": {"name": "Ascend Hardware"}}]
    for at, number in enumerate([*ids, 5]):
        events += [
            event("aten::mm", 10 * at, 9),
            {"ph": "X", "name": "MatMul", "pid": 800, "tid": 4, "ts": f"{10 * at + 5}.25", "dur": 2},
            {**flow, "ph": "s", "id": number, "pid": 1, "tid": 1, "ts": 10 * at},
            {**flow, "ph": "f", "id": number, "pid": 800, "tid": 4, "ts": f"{10 * at + 5}.25"},
        ]
    events += [{**flow, "ph": "f", "id": 5}, {**flow, "ph": "f", "id": 5, "pid": [], "tid": 1, "ts": 5}]
    path = write(tmp_path / "t.json", events)
    assert not both(path)
    assert not both(path, chunk_bytes=700)
    with reading(0):
        trace = source.read(path)
    kernels = [row for row, name in enumerate(trace.events["name"].to_pylist()) if name == "MatMul"]
    assert (trace.ints("launched_by")[kernels] < 0).sum() == 1  # the link whose id is null


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


def op(name: str, ts: float, dur: float, more: str = "") -> str:
    return f'{{"ph":"X","cat":"cpu_op","name":"{name}","pid":1,"tid":1,"ts":{ts},"dur":{dur}{more}}}'


SURROGATES = r"a\ud800b\udc00" + r"\\ud800" + r"\ud83d\ude00"
RECORDED: list[Any] = [
    [], "[]", {}, "", [[2, 3]], "[[2, 3]]", "4096", "2,3;\r\n;\r\n7", "float;\r\nNone",
]  # fmt: skip
UNUSUAL = {
    "repeated keys": [op("a", 1, 1, ',"args":{"a":1,"b":2,"a":3},"name":"b","ts":5')],
    "a null argument identifies no device": [
        f'{{"ph":"X","cat":"kernel","name":"kernel","pid":{i},"tid":7,"ts":{i + 1},"dur":1,"args":{args}}}'
        for i, args in enumerate(('{"device":null}', "{}", '{"device":5}'))
    ],
    "an event without a start has no position, and would extend the recording to the origin of the clock": [
        '{"ph":"X","cat":"cpu_op","name":"lost","pid":1,"tid":1,"dur":5}',
        '{"ph":"i","cat":"cpu_instant_event","name":"lost","pid":1,"tid":1,"args":{"n":"\\u00e9"}}',
    ],
    "spans at 0 without a duration have no time; memory events and counters at 0 have, and spans that last": [
        op("first", 0, 5), '{"ph":"i","cat":"cpu_instant_event","name":"[memory]","pid":1,"tid":1,"ts":0}',
        op("op", 9, 0), *(op(f"lost {i}", 0, 0, f',"args":{{"Ev Idx":{i}}}') for i in range(100)),
    ],
    "a negative duration becomes 0": [op("back", 25, -5), op("b\\u00e9ck", 26, -5)],
    "a counter": ['{"ph":"C","name":"power","pid":1,"tid":1,"ts":25,"args":{"watts":3}}'],
    "lone surrogates are replaced like invalid bytes, in a name": [op(SURROGATES, 5, 1)],
    "and in an argument": [op("x", 5, 1, f',"args":{{"n":"{SURROGATES}"}}')],
    "shapes and types are lists or null; torch_npu writes texts with ; between the arguments": [
        op("aten::op", at, 1, f',"args":{json.dumps({"Input Dims": recorded, "Input type": recorded})}')
        for at, recorded in enumerate(RECORDED)
    ],
}  # fmt: skip


def test_unusual_events_are_read_alike(tmp_path: Path) -> None:
    """Usual events follow the unusual ones."""
    usual = [json.dumps(event("e", 100 + i)) for i in range(2)]
    path, traces = tmp_path / "t.json", {}
    for name, events in UNUSUAL.items():
        path.write_text('{"schemaVersion": 1, "traceEvents": [' + ",\n".join([*events, *usual]) + "]}")
        assert not both(path), name
        traces[name] = source.read(path)
    usual_notes = "rounded-clock no-clock-origin no-steps no-phases no-device-events device-events-without-launch"
    check_events(
        "readers/unusual_events.txt", traces, "kind start_ns dur_ns device shapes dtypes args", without=usual_notes
    )


def test_a_few_events_of_another_clock_do_not_decide_the_clock(tmp_path: Path) -> None:
    epoch_us = 1_765_000_000 * 10**6
    events = [event("op", epoch_us + i, 1) for i in range(9)] + [event("odd", 7, 1)]
    assert source.read(write(tmp_path / "a.json", events)).meta.clock == "epoch"
    assert (
        source.read(write(tmp_path / "b.json", [event("odd", epoch_us, 1), *events[9:] * 3])).meta.clock == "relative"
    )
