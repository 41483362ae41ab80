"""Tests of damaged files. Reading raises a SourceError that names the problem and the position, or returns the events
before the damage if ``partial`` is set."""

from __future__ import annotations

import gzip
import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from perfkit_core.errors import SourceError
from perfkit_core.plugins.contracts import Source
from perfkit_core.readers.load import load, read_with, stream
from perfkit_core.trace.model.trace import Trace
from perfkit_torch import source
from tests.support.chrome import event, raw, write
from tests.support.golden import check_golden
from tests.support.paths import DATA
from tests.support.scanned import both

pytestmark = pytest.mark.bare


TORCH = Source("torch", "torch", source.sniff, source.read)
EVENTS = [event(f"aten::op{i}", i, 2, args={"Input Dims": [[i]], "n": {"m": [{}, {}]}}) for i in range(40)]
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
)
USUAL = ("event-account", "no-steps", "no-phases", "no-device-events", "rounded-clock", "no-clock-origin")
BEFORE = {"distributedInfo": {"rank": 3, "world_size": 4}}


def read_or_message(path: Path, partial: bool = False) -> Trace | str:
    """Return the Trace or the text of the SourceError. Any other exception is a failure."""
    try:
        return read_with(TORCH, path, partial)
    except SourceError as error:
        return str(error)


def complete_events(text: str) -> int:
    """Return the number of events that end before the text ends."""
    return len(re.findall(r'"m": \[\{\}, \{\}\]\}\}\}', text))


@pytest.mark.parametrize("fiftieth", [1, 2, 3, 5, 8, 13, 21, 30, 40, 47, 49])
def test_a_truncated_file_names_the_byte_and_keeps_its_beginning(tmp_path: Path, fiftieth: int) -> None:
    whole = json.dumps({**BEFORE, "traceEvents": EVENTS, "displayTimeUnit": "ns"})
    text = whole[: len(whole) * fiftieth // 50]
    path = raw(tmp_path / "cut.json", text.encode())
    with pytest.raises(SourceError) as caught:
        source.read(path)
    assert str(path) in caught.value.message
    assert int(re.search(r"\(byte (\d+)", caught.value.message)[1]) <= len(text)
    if '"traceEvents": [' not in text:
        return
    found = source.read(path, True)
    expected = complete_events(text)
    assert found.events["name"].to_pylist() == [f"aten::op{i}" for i in range(expected)]
    assert found.ints("start_ns").tolist() == [1000 * i for i in range(expected)]
    assert "truncated" in {finding.code for finding in found.quality}
    assert found.meta.incomplete


@pytest.mark.parametrize("fiftieth", [1, 2, 5, 20, 40, 49])
def test_compressed_data_may_be_cut_anywhere(tmp_path: Path, fiftieth: int) -> None:
    data = gzip.compress(json.dumps({**BEFORE, "traceEvents": EVENTS * 50}).encode())
    path = tmp_path / "cut.json.gz"
    path.write_bytes(data[: len(data) * fiftieth // 50])
    with pytest.raises(SourceError, match=re.escape(str(path))):
        source.read(path)
    found = read_or_message(path, True)
    if fiftieth > 2:  # a shorter file does not contain the beginning of the list of events
        assert isinstance(found, Trace)
        names = [f"aten::op{i}" for i in range(40)]
        assert sorted(set(found.events["name"].to_pylist())) == sorted(names[: len(found)])
        assert "truncated" in {finding.code for finding in found.quality}


def test_a_header_number_beyond_floats_is_kept_as_text(tmp_path: Path) -> None:
    """The number is kept as text whether the file is loaded or streamed, because the JSON in a stored file cannot hold
    it."""
    text = '{"schemaVersion": 1, "more": {"a": 1e400, "b": [NaN, -Infinity, 1.5]}, "traceEvents": %s}'
    path, stored = raw(tmp_path / "t.json", (text % json.dumps(EVENTS)).encode()), tmp_path / "t.perfkit.parquet"
    stream(path, stored, keep_host=True)
    expected = {"more": {"a": "1e400", "b": ["NaN", "-Infinity", 1.5]}}
    assert (load(path).meta.extra, load(stored).meta.extra) == (expected, expected)


def test_the_number_used_for_missing_stays_in_arguments(tmp_path: Path) -> None:
    addresses = [-(2**63), 2**63, 1 - 2**63]
    path = write(tmp_path / "t.json", [event("[memory]", at, args={"Addr": addr}) for at, addr in enumerate(addresses)])
    found = source.read(path)
    assert found.events["address"].to_pylist() == [None, None, 1 - 2**63]
    assert found.events["args"].to_pylist() == [f'{{"Addr":{addr}}}' for addr in addresses[:2]] + [None]
    assert not both(path)


def damaged(tmp_path: Path, old: str, new: str) -> Path:
    """Write EVENTS to a file, with ``old`` replaced by ``new``."""
    text = json.dumps({"schemaVersion": 1, "traceEvents": EVENTS, "displayTimeUnit": "ns"})
    assert old in text
    return raw(tmp_path / "t.json", text.replace(old, new, 1).encode())


def messages(trace: Trace, code: str) -> list[str]:
    return [finding.message for finding in trace.quality if finding.code == code]


def streamed(path: Path, partial: bool = False) -> Trace:
    stored = path.with_suffix(".perfkit.parquet")
    stream(path, stored, partial=partial)
    return load(stored)


def document(events: list[Any] = EVENTS, **more: Any) -> str:
    return json.dumps({"schemaVersion": 1, "traceEvents": events, "displayTimeUnit": "ns", **more})


WHOLE = document()
OP7 = '{"ph": "X", "cat": "cpu_op", "name": "aten::op7"'
STRAY = WHOLE.replace(f", {OP7}", ", 5 ")
DEEP = {"lists": ("[" * 5000, "]" * 5000), "objects": ('{"m":' * 5000, "}" * 5000),
        "lists and objects": ('[{"m":' * 5000, "}]" * 5000)}  # fmt: skip
DAMAGED = {
    "the end of the document is missing": WHOLE[:-1],
    "an event is not JSON": WHOLE.replace('"name": "aten::op7"', '"name": @'),
    "a missing brace damages only one event":
        document([event(f"aten::op{i}", i) for i in range(40)]).replace('"ts": 7, "dur": 1}', '"ts": 7, "dur": 1'),
    "a brace between events": WHOLE.replace(f", {OP7}", f"}}, {OP7}"),
    "a byte instead of the comma": WHOLE.replace(f", {OP7}", f"; {OP7}"),
    "half an event": WHOLE.replace(f", {OP7}", f', "args": {{"a": [1, {{}}]}}}}, {OP7}'),
    "a brace at the end of the list": WHOLE.replace("]}}}]", "]}}}}]"),
    "a byte at the end of the list": WHOLE.replace("]}}}]", "]}}};]"),
    "stray text without a later event ends the file": STRAY[: STRAY.index(", 5 ") + 40],
    **{f"the start {value}": WHOLE.replace('"ts": 7', f'"ts": {value}') for value in ("inf", "null", "1e400")},
    "the duration Infinity": WHOLE.replace('"dur": 2', '"dur": Infinity', 1),
    **{
        f"the {field} {value!r}": document([event("aten::a", 1), {**event("aten::b", 2), field: value}])
        for field in ("ts", "dur") for value in ("abc", None, [1], 1e300, 1e40)
    },
    **{f"{more} after the document": f"{WHOLE}\n {more}" for more in ("{}", "]", "}", "x")},
    "origin and start do not fit in 64 bits":
        document([event("a", 1), event("b", 9 * 10**15)], baseTimeNanoseconds=1790857026 * 10**9),
    "start and duration do not fit": document([event("a", 1), event("b", 9 * 10**15, 9 * 10**15)]),
    "a negative origin and start do not fit":
        document([event("a", 1), event("b", -(2**53))], baseTimeNanoseconds=-(2**62)),
    **{
        f"an event nested too deep: {name}": WHOLE.replace("[[7]]", f"{opening}0{closing}")
        for name, (opening, closing) in DEEP.items()
    },
    "a header nested too deep": f'{WHOLE[:-1]}, "more": {"[" * 5000}{"]" * 5000}}}',
}  # fmt: skip


def test_damage_is_located_and_left_out_when_partial(tmp_path: Path) -> None:
    """The scanner, the reference reader with small and large windows, and streaming agree."""
    lines = []
    for name, text in DAMAGED.items():
        path = raw(tmp_path / "t.json", text.encode())
        with pytest.raises(SourceError) as caught:
            load(path)
        with pytest.raises(SourceError) as while_streaming:
            streamed(path)
        assert while_streaming.value.message == caught.value.message
        assert "--partial" in caught.value.hint or "not a 64-bit number" in caught.value.message, name
        assert not both(path), name
        for window_bytes in (200, 1 << 20):
            assert not both(path, partial=True, window_bytes=window_bytes), name
        lines += [f"# {name}", caught.value.message.replace(str(path), "t.json")]
        try:
            found = load(path, partial=True)
        except SourceError as error:
            same = error.message == caught.value.message
            lines += [f"with partial: {'the same error' if same else error.message}", ""]
            continue
        assert streamed(path, partial=True).quality == found.quality
        kept = found.events["name"].to_pylist()
        missing = [one["name"] for one in EVENTS if one["name"] not in kept] if len(kept) > 5 else []
        lines.append(f"with partial: {len(found)} events, without {', '.join(missing) or 'none'}")
        lines += [f"{one.code}: {one.message}" for one in found.quality if one.code not in USUAL] + [""]
    check_golden("readers/damaged_files.txt", "\n".join(lines).replace(str(tmp_path), "FOLDER"))


def test_a_partial_recording_without_times_lasts_as_its_events(tmp_path: Path) -> None:
    recording = {**event("PyTorch Profiler (0)", 1, cat="Trace"), "ts": None}
    path = write(tmp_path / "t.json", [event("aten::a", 1), recording])
    with pytest.raises(SourceError, match=r"t\.json: a timestamp is not a 64-bit number.*of the recording"):
        load(path)
    found = load(path, partial=True)
    assert (len(found), found.meta.window_ns) == (1, (1000, 2000))


@pytest.mark.parametrize("partial", [False, True])
def test_a_header_number_outside_json_is_kept_as_text(tmp_path: Path, partial: bool) -> None:
    """The number is in the header before the events. Such a number in an event is kept in the same way."""
    path = raw(tmp_path / "t.json", b'{"schemaVersion": 1, "a": {"b": [inf, -nan, {}]}, "c": -inf, "traceEvents": %s}'
               % json.dumps(EVENTS).encode())  # fmt: skip
    found = load(path, partial=partial)
    assert (len(found), found.quality) == (40, load(damaged(tmp_path, "ns", "ns")).quality)
    assert found.meta.extra == {"a": {"b": ["inf", "-nan", {}]}, "c": "-inf"}


def test_values_that_do_not_fit_an_integer_column_remain_arguments(tmp_path: Path) -> None:
    values = [{}, 1.5, "x", 2**64, True, [1]]
    path = write(tmp_path / "t.json", [event("[memory]", at, args={"Addr": value}) for at, value in enumerate(values)])
    assert not both(path)
    found = source.read(path).events
    assert found["address"].null_count == len(values)
    assert [json.loads(text) for text in found["args"].to_pylist()] == [{"Addr": value} for value in values]


REAL = "torch/mi250-minitoy-train.json.gz"
DAMAGES = {
    "a comma": (b'"name": "aten::transpose", "pid": 597913,', b'"name": "aten::transpose", "pid": 597913'),
    "the quote behind a name": (b'"aten::transpose",', b'"aten::transpose,'),
    "a brace": (b'"Ev Idx": 7\n    }', b'"Ev Idx": 7\n    '),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_event_is_not_repaired_from_its_neighbours(traces: Path, tmp_path: Path, damage: str) -> None:
    text, names = gzip.decompress((traces / REAL).read_bytes()), source.read(traces / REAL).events["name"].to_pylist()
    assert DAMAGES[damage][0] in text
    path = raw(tmp_path / "bad.json", text.replace(*DAMAGES[damage], 1))
    with pytest.raises(SourceError, match="an event is not valid JSON"):
        source.read(path)
    found = source.read(path, True)
    kept = found.events["name"].to_pylist()
    assert (len(kept), Counter(kept) - Counter(names)) == (len(names) - 1, Counter())
    assert next(f.message for f in found.quality if f.code == "skipped-events").startswith("1 events")


@pytest.mark.parametrize("flow", ['{"ph": "f", "id": 9, "ts": 2, "name": "ac2g", "bp": "e"}, ', ""])
@pytest.mark.parametrize("value", ["inf", "-nan", "Infinity", "NaN", "1e400", "N/A", "None", "undefined", "-nan(ind)"])
def test_a_word_that_json_does_not_have_is_kept_as_text(tmp_path: Path, value: str, flow: str) -> None:
    events = json.dumps([event("aten::a", 1), event("gemm", 2, args={"blocks": "@"}), event("aten::b", 3)])
    events = re.sub(r'(?=\{[^{]*"aten::b")', flow, events.replace('"@"', value))
    text = '{"schemaVersion": 1, "traceEvents": ' + events + "}"
    path = raw(tmp_path / "inf.json", text.encode())
    found = source.read(path)
    assert found.events["name"].to_pylist() == ["aten::a", "gemm", "aten::b"]
    assert json.loads(found.events["args"][1].as_py()) == {"blocks": value}
    assert not both(path)


def test_words_in_lists_and_objects_are_kept_as_text(tmp_path: Path) -> None:
    text = json.dumps([event("aten::a", 1), event("gemm", 2, args={"x": "@"}), event("aten::b", 3)])
    words = '[N/A, 1, {"a": -nan, "b": [None, -inf]}]'
    path = raw(tmp_path / "t.json", f'{{"traceEvents": {text.replace(chr(34) + "@" + chr(34), words)}}}'.encode())
    assert json.loads(source.read(path).events["args"][1].as_py()) == {
        "x": ["N/A", 1, {"a": "-nan", "b": ["None", "-inf"]}]
    }
    assert not both(path)


@pytest.mark.parametrize("word", ["N/A", "-nan"])
def test_a_word_in_a_file_of_paddle_is_kept_as_text(tmp_path: Path, word: str) -> None:
    text = gzip.decompress((DATA / "paddle-mlp.json.gz").read_bytes()).decode()
    path = raw(tmp_path / "t.json", text.replace('"callstack": ""', f'"callstack": "", "occupancy": {word}').encode())
    found, whole = load(path), load(DATA / "paddle-mlp.json.gz")
    assert found.events["name"].equals(whole.events["name"])
    assert {json.loads(args)["occupancy"] for args in found.events["args"].drop_null().to_pylist() if word in args} == {
        word
    }
    assert not both(path)


MUTATIONS = st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(0, 255)), min_size=1, max_size=8)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(MUTATIONS, st.booleans(), st.booleans())
def test_random_bytes_give_a_trace_or_a_source_error(
    tmp_path: Path, mutations: list[tuple[float, int]], packed: bool, partial: bool
) -> None:
    data = bytearray(json.dumps({**BEFORE, "schemaVersion": 1, "traceEvents": EVENTS[:12]}).encode())
    data = bytearray(gzip.compress(bytes(data), mtime=0)) if packed else data
    for place, value in mutations:
        data[int(place * len(data))] = value
    path = tmp_path / "mutated.json"
    path.write_bytes(data)
    found = read_or_message(path, partial)
    if isinstance(found, str):
        assert str(path) in found
        assert "\n" not in found
    else:
        assert len(found) <= 12


EVENT_KEY = re.compile(r'"(?:ph|cat|name|pid|tid|ts|dur|args)"\s*:')


def extents(text: str) -> list[tuple[int, int, str]]:
    """Return the begin, the end and the name of each event of a file."""
    found, at = [], text.index("{", text.index('"traceEvents"'))
    while text[at] == "{":
        value, end = json.JSONDecoder().raw_decode(text, at)
        found.append((at, end, value["name"]))
        at = re.compile(r"[\s,]*").match(text, end).end()
    return found


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    at=st.floats(0, 1, exclude_max=True),
    count=st.sampled_from([0, 0, 1, 1, 30, 200]),
    bit=st.integers(0, 7),
    partial=st.booleans(),
)
def test_damage_does_not_invent_names_or_hide_other_events(
    traces: Path, tmp_path: Path, at: float, count: int, bit: int, partial: bool
) -> None:
    """A bit of a real file is flipped, or some bytes are removed. The events that were read include every undamaged
    event."""
    data = bytearray(gzip.decompress((traces / REAL).read_bytes()))
    events = extents(data.decode())
    place = events[0][0] + int(at * (events[-1][1] - events[0][0]))
    if count:
        del data[place : place + count]
    else:
        data[place] ^= 1 << bit
    found = read_or_message(raw(tmp_path / "damaged.json", bytes(data)), partial)
    if isinstance(found, str):
        return
    names = found.events["name"].to_pylist()
    assert not any(EVENT_KEY.search(name or "") for name in names)
    if not {"skipped-events", "truncated"} & {finding.code for finding in found.quality}:
        hit = Counter(name for begin, end, name in events if begin < place + max(count, 1) and place < end)
        assert not Counter(source.read(traces / REAL).events["name"].to_pylist()) - hit - Counter(names)


@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(VALUES, st.sampled_from(["name", "cat", "ph", "pid", "tid", "args", "ts", "dur"]))
def test_any_json_value_in_any_field_is_read_or_refused(tmp_path: Path, value: object, field: str) -> None:
    path = write(tmp_path / "t.json", [event("aten::a", 1), {**event("aten::b", 2), field: value}])
    found = read_or_message(path)
    assert str(path) in found if isinstance(found, str) else 1 <= len(found) <= 2


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.sampled_from(["deviceProperties", "distributedInfo", "baseTimeNanoseconds", "displayTimeUnit", "with_stack"]),
    VALUES,
)
def test_any_json_value_in_the_header_is_read_or_refused(tmp_path: Path, key: str, value: object) -> None:
    path = write(tmp_path / "t.json", [event("aten::a", 1)], **{key: value})
    found = read_or_message(path)
    assert str(path) in found if isinstance(found, str) else len(found) == 1


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "empty"),
        (b"  \n ", "unknown profile format|empty"),
        (b"hello", "unknown profile format"),
        (b'{"a": 1}', "unknown profile format"),
        (b'{"schemaVersion": 1, "events": []}', "traceEvents"),
        (b"\x1f\x8b\x08\x00", "unknown profile format|gzip"),
        (WHOLE.encode("utf-16"), "a text in UTF-16"),
    ],
)
def test_foreign_and_empty_files_are_refused_in_one_line(tmp_path: Path, data: bytes, said: str) -> None:
    path = tmp_path / "foreign.json"
    path.write_bytes(data)
    with pytest.raises(SourceError, match=said) as caught:
        load(path)
    assert str(path) in caught.value.message
    assert caught.value.hint


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="no such file"):
        load(tmp_path / "nothing.json")
    with pytest.raises(SourceError, match="no source"):
        load([])
