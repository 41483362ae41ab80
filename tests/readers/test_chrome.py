"""Tests of the Chrome-trace reader with any position of the cuts, any layout of the top level, and any text in a
name."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from perfkit_core.readers.chrome import event_list
from perfkit_core.readers.chrome.reader import ChromeFile
from perfkit_core.readers.load import load
from perfkit_core.trace.model.trace import Trace
from perfkit_core.trace.storage.bytestream import Window
from perfkit_torch import source
from tests.support.chrome import HEADER, event, raw, write
from tests.support.paths import DATA

pytestmark = pytest.mark.bare


HOSTILE = [
    '}, {"ph": "X"}]',
    "a]",
    'q"u\\o\\\\te',
    "\u2028\U0001f600é",
    "[{",
    "}",
    "\t\n\x00",
    '", "pid": 3',
    "x" * 5000,
]


def read_in_chunks(monkeypatch: pytest.MonkeyPatch, path: Path, size: int) -> Trace:
    with monkeypatch.context() as patch:
        patch.setattr(event_list, "WINDOW_BYTES", size)
        patch.setattr(Window.more, "__defaults__", (size,))
        return source.read(path)


@pytest.mark.parametrize("size", [40, 64, 1000, 4096])
def test_the_position_of_cuts_does_not_change_the_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    events = [event(name, i, args={"Input Dims": [[1, 2], []], "note": name}) for i, name in enumerate(HOSTILE)]
    events.append(event("many", 90, args={"list": [{"a": i, "b": [{}, {}]} for i in range(40)]}))
    path = write(tmp_path / "t.json", events, after="z")
    whole = source.read(path)
    cut = read_in_chunks(monkeypatch, path, size)
    assert whole.events["name"].to_pylist() == [*HOSTILE, "many"]
    assert cut.events.equals(whole.events)
    assert cut.meta == whole.meta
    assert not {"repaired-events", "truncated"} & {f.code for f in cut.quality}


@pytest.mark.parametrize("size", [100, 5000, 1 << 16])
def test_the_position_of_cuts_in_a_real_file_does_not_change_the_result(
    traces: Path, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    path = traces / "torch" / "h100-bert-small.json.gz"
    whole, cut = source.read(path), read_in_chunks(monkeypatch, path, size)
    assert len(cut) > 2000
    assert cut.events.equals(whole.events)
    assert cut.quality == whole.quality


NAMES = st.text(st.characters(codec="utf-8"), min_size=1, max_size=30)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(names=st.lists(NAMES, min_size=1, max_size=6), indent=st.sampled_from([None, 0, 2]), ascii_only=st.booleans())
def test_any_text_that_json_can_hold_comes_back(
    tmp_path: Path, names: list[str], indent: Any, ascii_only: bool
) -> None:
    document = {**HEADER, "traceEvents": [event(name, i) for i, name in enumerate(names)]}
    path = raw(tmp_path / "t.json", json.dumps(document, indent=indent, ensure_ascii=ascii_only).encode())
    found = source.read(path)
    assert found.events["name"].to_pylist() == names
    assert "repaired-events" not in {f.code for f in found.quality}


def test_gzip_and_plain_are_the_same_trace(tmp_path: Path) -> None:
    events = [event(name, i) for i, name in enumerate(HOSTILE)]
    plain, packed = write(tmp_path / "t.json", events), write(tmp_path / "t.json.gz", events)
    assert packed.read_bytes()[:2] == b"\x1f\x8b"
    assert source.read(plain).events.equals(source.read(packed).events)


def test_gzip_is_recognised_by_its_bytes_not_by_its_name(tmp_path: Path) -> None:
    packed = write(tmp_path / "t.json.gz", [event("aten::mm", 1)])
    assert len(load(packed.rename(tmp_path / "t.json"))) == 1


@pytest.mark.parametrize("end", [b"]", b",]", b"\n]\n", b", {}]"])
def test_the_top_level_may_be_the_list_itself(tmp_path: Path, end: bytes) -> None:
    text = json.dumps([event("aten::a", 1), event("aten::b", 2)]).encode()[:-1] + end
    assert source.read(raw(tmp_path / "t.json", text)).events["name"].to_pylist() == ["aten::a", "aten::b"]


def test_a_byte_order_mark_and_spaces_before_the_document(tmp_path: Path) -> None:
    text = b"\xef\xbb\xbf \n" + json.dumps([event("aten::a", 1)]).encode()
    assert len(source.read(raw(tmp_path / "t.json", text))) == 1
    text = b"\xef\xbb\xbf" + gzip.decompress((DATA / "paddle-mlp.json.gz").read_bytes())
    assert len(load(raw(tmp_path / "paddle.json", text))) == len(load(DATA / "paddle-mlp.json.gz"))


def test_keys_may_stand_before_and_after_the_events(tmp_path: Path) -> None:
    """The clock's base and the rank follow two megabytes of events, and a header value contains brackets."""
    events = [event(f"aten::op{i}", i, args={"pad": "y" * 900}) for i in range(2200)]
    document = {
        "first": {"text": ']}"', "list": [1, {"a": []}]},
        "traceEvents": events,
        "baseTimeNanoseconds": 1_700_000_000_000_000_000,
        "distributedInfo": {"rank": 5, "world_size": 8},
        "last": -1.5,
        "none": None,
    }
    found = source.read(raw(tmp_path / "t.json", json.dumps(document).encode()))
    assert len(found) == 2200
    assert found.ints("start_ns")[1] == 1_700_000_000_000_001_000
    assert (found.meta.ranks, found.meta.world_size) == ((5,), 8)
    assert found.meta.extra == {"first": document["first"], "last": -1.5, "none": None}


def test_a_large_event_with_nested_objects_is_read_whole(tmp_path: Path) -> None:
    """An event has three megabytes of arguments in which every comma looks like the border between two events."""
    big = {"list": [{"a": 1}, {"b": "}, {"}] * 100_000}
    path = write(tmp_path / "t.json", [event("aten::a", 1), event("aten::big", 2, args=big), event("aten::c", 3)])
    found = source.read(path)
    assert found.events["name"].to_pylist() == ["aten::a", "aten::big", "aten::c"]
    assert json.loads(found.events["args"][1].as_py()) == big


def test_batches_stay_near_a_megabyte(tmp_path: Path) -> None:
    """Memory is bounded, because no batch holds much more than one window of text."""
    events = [event("aten::op", i, args={"pad": "y" * 1000}) for i in range(8000)]
    sizes = [len(batch) for batch in ChromeFile(write(tmp_path / "t.json", events)).batches()]
    assert sum(sizes) == 8000
    assert max(sizes) < 2 * 1_048_576 / 1000


UNSOUND = {
    "quote": (b'say "hello"', 'say "hello"'),
    "quotes and brackets": (b'f("}", [{1}, {2}])', 'f("}", [{1}, {2}])'),
    "backslash": (rb"C:\temp\xyz", r"C:\temp\xyz"),
    "line break": (b"two\nlines", "two\nlines"),
    "control": (b"bell\x07", "bell\x07"),
    "not UTF-8": (b"caf\xe9", "caf\ufffd"),
}


@pytest.mark.parametrize("kind", UNSOUND)
def test_names_that_are_not_json_are_repaired_and_reported(tmp_path: Path, kind: str) -> None:
    """Kineto and Paddle do not escape names. The events around such an event keep their values."""
    bad, meant = UNSOUND[kind]
    sound = json.dumps({**HEADER, "traceEvents": [event("aten::a", 1), event("@NAME@", 2, 5), event("aten::c", 3)]})
    found = source.read(raw(tmp_path / "t.json", sound.encode().replace(b"@NAME@", bad)))
    assert found.events["name"].to_pylist() == ["aten::a", meant, "aten::c"]
    assert found.ints("dur_ns").tolist() == [1000, 5000, 1000]
    assert next(f.message for f in found.quality if f.code == "repaired-events").startswith("1 event was")


def test_a_thousand_invalid_names_are_repaired(tmp_path: Path) -> None:
    events = [event("aten::a" if i % 3 else "@NAME@", i) for i in range(3000)]
    text = json.dumps({**HEADER, "traceEvents": events}).encode().replace(b"@NAME@", b'say "x"')
    found = source.read(raw(tmp_path / "t.json", text))
    assert found.events["name"].to_pylist() == ["aten::a" if i % 3 else 'say "x"' for i in range(3000)]
    assert next(f.message for f in found.quality if f.code == "repaired-events").startswith("1000 events")


def test_events_of_unknown_types_are_counted_and_flows_are_not(tmp_path: Path) -> None:
    more = [
        {"ph": "b", "name": "x", "ts": 1},
        {"ph": "s", "id": 1, "ts": 1, "name": "ac2g"},
        {"ph": "f", "id": 1, "ts": 2},
    ]
    found = source.read(write(tmp_path / "t.json", [event("aten::a", 1), *more]))
    assert len(found) == 1
    assert next(f.message for f in found.quality if f.code == "unread-events").endswith("1 of type 'b'")


def test_equal_events_remain_separate(tmp_path: Path) -> None:
    assert len(source.read(write(tmp_path / "t.json", [event("aten::a", 1)] * 5))) == 5


def test_thread_numbers_may_be_text(tmp_path: Path) -> None:
    """A text without a number has a number of its own, so that events of the thread nest."""
    threads = [("77", 0, 9), ("main", 1, 9), ("main", 2, 3), ("other", 3, 2)]
    events = [event(f"aten::{tid}", ts, dur, tid=tid, pid="5") for tid, ts, dur in threads]
    found = source.read(write(tmp_path / "t.json", events))
    tid = found.events["tid"].to_pylist()
    assert tid[0] == 77
    assert tid[1] == tid[2]
    assert len({*tid}) == 3
    assert found.events["parent"].to_pylist() == [-1, -1, 1, -1]
    assert set(found.events["pid"].to_pylist()) == {5}
