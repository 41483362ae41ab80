"""Tests that exported timelines with cells that perfkit does not write are refused in one line."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from perfkit_core import export, load
from perfkit_core.cli.main import main
from perfkit_core.errors import SourceError
from perfkit_core.trace.model import frame_samples, schema
from perfkit_core.trace.model.frame_samples import FrameSamples
from perfkit_core.trace.model.trace import concat_traces, with_rank
from tests.support.chrome import raw
from tests.support.events import codes
from tests.support.small_trace import small_trace

pytestmark = pytest.mark.bare
Content = dict[str, Any]
ROWS = 32


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The timeline of two ranks."""
    samples = frame_samples.to_table({"0": FrameSamples(("a.py(1): f",), (1,), (0,))})
    path = tmp_path_factory.mktemp("exported") / "t.json"
    export(concat_traces([with_rank(small_trace().with_tables(frame_samples=samples), rank) for rank in (0, 1)]), path)
    return path.read_bytes()


@pytest.fixture
def timeline(exported: bytes, tmp_path: Path) -> Callable[[Callable[[Content], None]], Path]:
    def changed(change: Callable[[Content], None]) -> Path:
        content = json.loads(exported)
        change(content)
        return raw(tmp_path / "t.json", json.dumps(content).encode())

    return changed


def event(content: Content, row: int) -> Content:
    return next(event for event in content["traceEvents"] if event.get("args", {}).get("row") == row)


def cell(row: int, name: str, value: Any) -> Callable[[Content], None]:
    return lambda content: event(content, row)["args"].update({name: value})


def member(row: int, name: str, value: Any) -> Callable[[Content], None]:
    return lambda content: event(content, row).update({name: value})


def meta(**values: Any) -> Callable[[Content], None]:
    return lambda content: content["perfkit"]["meta"].update(values)


def lane(**values: Any) -> Callable[[Content], None]:
    return lambda content: content["perfkit"]["lanes"][0].update(values)


IMPOSSIBLE: dict[str, tuple[Callable[[Content], None], str]] = {
    "parent of itself": (cell(7, "parent", 7), "the column parent of row 7 is 7, which is not an earlier row"),
    "parent is the last row": (cell(2, "parent", ROWS - 1), "the column parent of row 2 is 31"),
    "parent far outside": (cell(7, "parent", 10**12), "the column parent of row 7 is 1000000000000"),
    "smallest parent": (cell(7, "parent", -(2**63)), "the column parent of row 7 is -9223372036854775808"),
    "parent below -1": (cell(7, "parent", -2), "the column parent of row 7 is -2"),
    "launched outside": (cell(5, "launched_by", ROWS), "the column launched_by of row 5 is 32, which is not a row"),
    "launched by a kernel": (cell(7, "launched_by", 5), "row 7 is launched by row 5, which is no event of the host"),
    "a parent beyond 64 bits": (cell(7, "parent", 2**64), "the parent of an event does not fit int64"),
    "unknown kind": (cell(3, "kind", "kernels"), "the column kind has an unknown word in row 3: 'kernels'"),
    "no kind": (cell(3, "kind", None), "the column kind is empty in row 3"),
    "unknown phase": (cell(3, "phase", "x"), "the column phase has an unknown word in row 3: 'x'"),
    "no name": (member(3, "name", None), "the column name is empty in row 3"),
    "a number as name": (member(3, "name", 5), "the name of an event is '5', which is no text"),
    "a list as category": (member(3, "cat", ["x"]), "the category of an event is"),
    "negative duration": (member(3, "dur", -1), "the column dur_ns is negative in row 3: -1000"),
    "negative self time": (cell(3, "self_ns", -1), "the column self_ns is negative in row 3: -1"),
    "a row twice": (cell(3, "row", 4), "two events have the same row"),
    "negative row": (cell(3, "row", -1), "the row of an event is negative"),
    "no row": (cell(3, "row", None), "an event has no row"),
    "no arguments": (member(3, "args", 7), "an event has no row"),
    "a process without a lane": (member(3, "pid", 77), "the header has no lane for the pid 77"),
    "a thread as text": (member(3, "tid", "1"), "the tid of an event is '1', which is no integer"),
    "no lanes": (lambda content: content["perfkit"].update(lanes=[]), "the header has no lane for the pid 1"),
    "two equal lanes": (
        lambda content: content["perfkit"]["lanes"].append(content["perfkit"]["lanes"][0]),
        "two lanes of the header have the same numbers",
    ),
    "a huge rank": (lane(rank=2**62), "damaged perfkit header (Expected `int` <= 1048576 - at `$.lanes[0].rank`)"),
    "a negative rank": (lane(rank=-1), "damaged perfkit header (Expected `int` >= 0"),
    "a rank that the metadata lacks": (lane(rank=5), "the events of rank 5 contradict the metadata"),
    "a stream beyond 64 bits": (lane(stream=2**63), "damaged perfkit header"),
    "ranks of the metadata": (meta(ranks=[0, 2**62]), "damaged perfkit header"),
    "the window": (meta(window_ns=[0, 2**63]), "damaged perfkit header"),
    "a sample without a stack": (
        lambda content: content["perfkit"]["tables"]["frame_samples"].update(stack=[None, None]),
        "the column stack has an empty cell",
    ),
    "a side table that is no table": (
        lambda content: content["perfkit"]["tables"].update(account={"became": [1], "count": ["x"]}),
        "not a timeline as perfkit exports it",
    ),
    "a base that is no number": (
        lambda content: content.update(baseTimeNanoseconds="0"),
        "damaged perfkit header (Expected `int`, got `str`)",
    ),
}


@pytest.mark.parametrize(("change", "why"), IMPOSSIBLE.values(), ids=IMPOSSIBLE)
def test_impossible_cells_are_refused(
    timeline: Callable[[Callable[[Content], None]], Path], change: Callable[[Content], None], why: str
) -> None:
    with pytest.raises(SourceError) as refused:
        load(timeline(change))
    assert why in refused.value.message
    assert "t.json: " in refused.value.message
    assert refused.value.hint == "export the run again"


@pytest.mark.parametrize(
    "name", [name for name in schema.COLUMN_NAMES if name not in ("start_ns", "dur_ns", "args", "rank", "pid", "tid")]
)
def test_a_cell_of_another_type_is_refused(timeline: Callable[..., Path], name: str) -> None:
    text = not str(schema.SCHEMA.field(name).type).startswith("int")
    key = {"category": "cat"}.get(name, name)
    if name == "stream":  # a lane states it
        change = lane(stream="7")
    else:
        change = (member if name in ("name", "category") else cell)(3, key, 7.5 if text else "7")
    with pytest.raises(SourceError, match=r"t\.json: "):
        load(timeline(change))


@pytest.mark.parametrize("case", ["parent of itself", "unknown kind", "no name", "no lanes", "a huge rank"])
def test_every_command_refuses_in_one_line(
    timeline: Callable[..., Path], tmp_path: Path, capsys: pytest.CaptureFixture[str], case: str
) -> None:
    path = str(timeline(IMPOSSIBLE[case][0]))
    out = ["-o", str(tmp_path / "out.json")]
    commands = (["summary"], ["export", *out], ["scrub", *out], ["compare", path], ["advise"], ["report", *out])
    for command in (*([*command, path] for command in commands), ["sql", path, "select * from events"]):
        assert main(command) == 2, command
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith("perfkit: error: ")
        assert "unexpected" not in line


def test_rows_that_are_missing_are_counted(timeline: Callable[..., Path]) -> None:
    """References to them point nowhere. Their number shows what another program removed."""

    def removed(content: Content) -> None:
        content["traceEvents"].remove(event(content, 4))

    found, whole = load(timeline(removed)), load(timeline(lambda content: None))
    assert (len(found), len(whole)) == (ROWS - 1, ROWS)
    (finding,) = [each for each in found.quality if each.code == "exported-events-missing"]
    assert finding.message.startswith("1 of 32 exported events are missing")
    assert found.ints("launched_by")[4] == -1
    assert whole.ints("launched_by")[5] == 4
    assert "exported-events-missing" not in codes(whole)
