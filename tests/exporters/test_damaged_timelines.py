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
from tests.support.golden import check_golden
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


def side_table(name: str, **columns: list[Any]) -> Callable[[Content], None]:
    return lambda content: content["perfkit"]["tables"].setdefault(name, {}).update(columns)


IMPOSSIBLE: dict[str, Callable[[Content], None]] = {
    "parent of itself": cell(7, "parent", 7),
    "parent is the last row": cell(2, "parent", ROWS - 1),
    "parent far outside": cell(7, "parent", 10**12),
    "smallest parent": cell(7, "parent", -(2**63)),
    "parent below -1": cell(7, "parent", -2),
    "parents in a circle": lambda content: [cell(row, "parent", row ^ 1)(content) for row in (6, 7)],
    "launched outside": cell(5, "launched_by", ROWS),
    "launched by a kernel": cell(7, "launched_by", 5),
    "a parent beyond 64 bits": cell(7, "parent", 2**64),
    "unknown kind": cell(3, "kind", "kernels"),
    "no kind": cell(3, "kind", None),
    "unknown phase": cell(3, "phase", "x"),
    "no name": member(3, "name", None),
    "a number as name": member(3, "name", 5),
    "a list as name": member(3, "name", ["a"]),
    "a list as category": member(3, "cat", ["x"]),
    "bytes beyond 64 bits": cell(3, "bytes", 2**80),
    "a step beyond 64 bits": cell(3, "step", 2**64),
    "negative duration": member(3, "dur", -1),
    "negative self time": cell(3, "self_ns", -1),
    "a row twice": cell(3, "row", 4),
    "negative row": cell(3, "row", -1),
    "a row far outside": cell(3, "row", 10**9),
    "no row": cell(3, "row", None),
    "no arguments": member(3, "args", 7),
    "a process without a lane": member(3, "pid", 77),
    "a thread as text": member(3, "tid", "1"),
    "no lanes": lambda content: content["perfkit"].update(lanes=[]),
    "lanes as text": lambda content: content["perfkit"].update(lanes="x"),
    "a lane too few": lambda content: content["perfkit"]["lanes"].pop(),
    "a process as text": lane(pid="x"),
    "two equal lanes": lambda content: content["perfkit"]["lanes"].append(content["perfkit"]["lanes"][0]),
    "a huge rank": lane(rank=2**62),
    "a negative rank": lane(rank=-1),
    "a rank that the metadata lacks": lane(rank=5),
    "a stream beyond 64 bits": lane(stream=2**63),
    "ranks of the metadata": meta(ranks=[0, 2**62]),
    "the window": meta(window_ns=[0, 2**63]),
    "a sample without a stack": side_table("frame_samples", stack=[None, None]),
    "a side table that is no table": side_table("account", became=[1], count=["x"]),
    "a base that is no number": lambda content: content.update(baseTimeNanoseconds="0"),
}


def test_impossible_cells_are_refused(timeline: Callable[[Callable[[Content], None]], Path]) -> None:
    lines = []
    for name, change in IMPOSSIBLE.items():
        path = timeline(change)
        with pytest.raises(SourceError) as refused:
            load(path)
        assert refused.value.hint == "export the run again"
        lines.append(f"{name}\n  {refused.value.message.replace(str(path), 't.json')}")
    check_golden("exporters/impossible_cells.txt", "\n".join(lines) + "\n")


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


@pytest.mark.parametrize("case", ["parent of itself", "a huge rank"])
def test_every_command_refuses_in_one_line(
    timeline: Callable[..., Path], tmp_path: Path, capsys: pytest.CaptureFixture[str], case: str
) -> None:
    path = str(timeline(IMPOSSIBLE[case]))
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
