"""Tests that damaged and hostile stored files are refused: no bit changes a table silently, and no cell leads compiled
code out of its arrays."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from perfkit_core.cli.main import main
from perfkit_core.errors import SourceError
from perfkit_core.readers import run_folder
from perfkit_core.readers.load import load, stream
from perfkit_core.trace.model import schema
from perfkit_core.trace.model.meta import StoredFinding
from perfkit_core.trace.model.timed_steps import TimedStep, TimedSteps
from perfkit_core.trace.model.trace import Trace
from perfkit_core.trace.storage import recorded_events, store, writer
from perfkit_core.trace.storage.stored_file import KEY, Stored
from tests.support.events import codes
from tests.support.short_dictionaries import shorten
from tests.support.side_facts import with_clock
from tests.support.small_trace import small_trace

pytestmark = pytest.mark.bare
OWN = "tests/data/torch-mlp.json.gz"
SHOWN = ("name", "kind", "device")
"""Columns that every command reads."""


@pytest.fixture(scope="module", params=["trace", "recorded"])
def stored(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A stored recording of several row groups, assembled or not."""
    path = tmp_path_factory.mktemp("stored") / "t.perfkit.parquet"
    if request.param == "recorded":
        stream(OWN, path)
        return path
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store, "_ROW_GROUP", 200)
        return store.write_trace(load(OWN), path)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The stored recording, assembled or not, with the usual row groups."""
    folder = tmp_path_factory.mktemp("whole")
    stream(OWN, folder / "recorded")
    return {"recorded": folder / "recorded", "trace": store.write_trace(load(OWN), folder / "trace")}


def test_no_flipped_bit_changes_a_table(stored: Path, tmp_path: Path) -> None:
    """Bits are spread evenly, and all bits after the footer are included."""
    data, expected = stored.read_bytes(), run_folder.read_stored(stored)
    assert len(expected) == 685
    place = random.Random(1)
    last = range(8 * (len(data) - 8), 8 * len(data))
    refused = 0
    for bit in itertools.chain(last, (place.randrange(8 * len(data)) for _ in range(200))):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        path = tmp_path / "t.perfkit.parquet"
        path.write_bytes(flipped)
        try:
            found = run_folder.read_stored(path, check=True)
        except SourceError:
            refused += 1
        else:
            assert found.events.equals(expected.events)
            assert (found.meta, found.quality) == (expected.meta, expected.quality)
    assert refused > 200


@pytest.mark.parametrize("old", [False, True])
def test_checksums_are_needed_where_they_were_written(stored: Path, tmp_path: Path, old: bool) -> None:
    """Files of older versions have none. Another program that rewrites a file drops them."""
    table = pq.read_table(stored)
    told = msgspec.json.decode(pq.read_metadata(stored).metadata[KEY])
    if old:
        del told["checksums"]
    path = tmp_path / "t.perfkit.parquet"
    pq.write_table(table.replace_schema_metadata({KEY: msgspec.json.encode(told)}), path)
    if old:
        assert run_folder.read_stored(path, check=True).events.equals(run_folder.read_stored(stored).events)
    else:
        with pytest.raises(SourceError, match="no checksums"):
            run_folder.read_stored(path)


def with_cells(path: Path, name: str, change: Callable[[list[Any]], None], rows: int = 5) -> Path:
    """Write the small trace with changed cells and correct checksums."""
    small = small_trace()
    cells = small.events[name].to_pylist()
    change(cells)
    field = pa.field(name, schema.SCHEMA.field(name).type)
    table = small.events.set_column(schema.COLUMN_NAMES.index(name), field, pa.array(cells, field.type))
    told = Stored(schema_version=schema.SCHEMA_VERSION, meta=small.meta, quality=(), checksums=True)
    with path.open("wb") as file:
        writer.write(table.replace_schema_metadata({KEY: told.json()}), file, rows, writer.encoding(table.schema))
    return path


def put(row: int, value: Any) -> Callable[[list[Any]], None]:
    def change(cells: list[Any]) -> None:
        cells[row] = value

    return change


CELLS = {
    "parent far outside": ("parent", put(7, 10**12)),
    "parent is the next row": ("parent", put(7, 8)),
    "parent of itself": ("parent", put(7, 7)),
    "negative parent": ("parent", put(7, -2)),
    "no parent": ("parent", put(7, None)),
    "launched outside": ("launched_by", put(12, 16)),
    "negative launch": ("launched_by", put(12, -7)),
    "no start": ("start_ns", put(3, None)),
    "negative duration": ("dur_ns", put(3, -1)),
    "no duration": ("dur_ns", put(3, None)),
    "no name": ("name", put(3, None)),
    "no kind": ("kind", put(3, None)),
    "unknown kind": ("kind", put(3, "kernels")),
    "unknown phase": ("phase", put(3, "")),
}


@pytest.mark.parametrize(("name", "change"), CELLS.values(), ids=CELLS)
def test_invalid_cells_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, change: Callable[[list[Any]], None]
) -> None:
    path = with_cells(tmp_path / "t.perfkit.parquet", name, change)
    loaded = run_folder.read_stored(path)
    for read in (loaded.column, lambda _: loaded.events):
        with pytest.raises(SourceError, match=r"t\.perfkit\.parquet: not a readable"):
            read(name)
    with pytest.raises(SourceError):
        run_folder.read_stored(path, check=True)
    for command in (["summary"], ["export", "--to", "folded", "-o", str(tmp_path / "out")]):
        assert main([*command, str(path)]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith("perfkit: error: ")


STAGES = {"trace": schema.SCHEMA, "recorded": recorded_events.SCHEMA}
SHORT = [
    (stage, field.name, beyond)
    for stage, fields in STAGES.items()
    for field in fields
    if not pa.types.is_integer(field.type)
    for beyond in ([1, 10, 10**6] if field.name in ("name", "kind") else [1])
]


@pytest.mark.parametrize(("stage", "name", "beyond"), SHORT)
def test_texts_that_no_dictionary_has_are_refused(
    whole: dict[str, Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    stage: str,
    name: str,
    beyond: int,
) -> None:
    """Arrow does not check the numbers of texts when it reads a file, and following them reads foreign memory."""
    path = tmp_path / "t.perfkit.parquet"
    shorten(whole[stage], path, name, beyond)
    with pytest.raises(SourceError, match=r"t\.perfkit\.parquet: not a readable Parquet file"):
        run_folder.read_stored(path, check=True)
    for command in (["summary"], ["export", "-o", str(tmp_path / "out.json")], ["scrub", "-o", str(tmp_path / "out")]):
        code, output = main([*command, str(path)]), capsys.readouterr()
        assert code == 2 or name not in SHOWN
        assert "unexpected" not in output.err


def test_texts_that_are_no_utf_8_are_refused(stored: Path, tmp_path: Path) -> None:
    table = pq.read_table(stored)
    texts = [b"\xff", *(text.encode() for text in table["name"].cast(pa.string()).to_pylist()[1:])]
    column = pa.array(texts, pa.binary()).view(pa.string()).dictionary_encode()
    table = table.set_column(table.column_names.index("name"), "name", column)
    table = table.replace_schema_metadata({KEY: pq.read_metadata(stored).metadata[KEY]})
    with (tmp_path / "t.parquet").open("wb") as file:
        writer.write(table, file, 100, writer.encoding(table.schema))
    with pytest.raises(SourceError, match="name is damaged in the rows 0 to 99: Invalid UTF8 sequence"):
        run_folder.read_stored(tmp_path / "t.parquet", check=True)


RECORDED = {
    "parent far outside": ("parent", 10**12, "refers to a row that does not exist"),
    "negative parent": ("parent", -2, "refers to a row that does not exist"),
    "negative duration": ("dur_ns", -1, "the column dur_ns is negative in row 7: -1"),
    "no device": ("device", None, "the column device is empty in row 7"),
    "unknown kind": ("kind", "kernels", "the column kind has an unknown word in row 7: 'kernels'"),
}


@pytest.mark.parametrize(("name", "value", "why"), RECORDED.values(), ids=RECORDED)
def test_invalid_recorded_cells_are_refused(
    whole: dict[str, Path], tmp_path: Path, name: str, value: Any, why: str
) -> None:
    """Cells of events that are not assembled yet. The source has numbered the parents by rows."""
    table = pq.read_table(whole["recorded"])
    cells = table[name].to_pylist()
    cells[7] = value
    table = table.set_column(
        table.column_names.index(name), name, pa.array(cells, recorded_events.SCHEMA.field(name).type)
    )
    table = table.replace_schema_metadata({KEY: pq.read_metadata(whole["recorded"]).metadata[KEY]})
    with (tmp_path / "t.parquet").open("wb") as file:
        writer.write(table, file, 100, writer.encoding(table.schema))
    with pytest.raises(SourceError, match=why):
        run_folder.read_stored(tmp_path / "t.parquet")


@pytest.mark.parametrize(
    "change",
    [
        {"ranks": [2**62]},
        {"ranks": [-1]},
        {"world_size": 2**40},
        {"window_ns": [0, 2**63]},
        {"devices": [{"id": "cuda:0", "memory_bytes": 2**64}]},
    ],
)
def test_numbers_of_the_metadata_fit_their_columns(tmp_path: Path, change: dict[str, Any]) -> None:
    path = store.write_trace(small_trace().with_meta(**change), tmp_path / "t.parquet")
    with pytest.raises(SourceError, match="metadata is damaged: Expected `int`"):
        run_folder.read_stored(path)


def test_numbers_of_step_times_of_format_1_fit_their_columns(tmp_path: Path) -> None:
    path = older_file(tmp_path / "t.parquet", timed={"0": {"steps": [[0, False, 2**64]]}})
    with pytest.raises(SourceError, match="metadata is damaged: Expected `int`"):
        run_folder.read_stored(path)


def test_a_template_that_no_version_wrote_is_not_followed() -> None:
    """The message in plain text is shown instead."""
    for template in ("{n.__class__}", "{n:>999999999}", "{other}", "{", "{n:ns}"):
        finding = StoredFinding("code", "plain text", template, {"n": 10**400})
        assert finding.finding().message == "plain text"
    assert StoredFinding("code", "plain text", "{n:count} events", {"n": 1}).finding().message == "1 events"


def test_valid_cells_are_accepted(tmp_path: Path) -> None:
    path = with_cells(tmp_path / "t.perfkit.parquet", "name", put(3, "another name"))
    assert run_folder.read_stored(path, check=True).events["name"][3].as_py() == "another name"


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"schema_version": -1}, "there is no version -1"),
        ({"schema_version": 0}, "there is no version 0"),
        ({"empty": ("start_ns",)}, "a column that every event needs is empty"),
    ],
)
def test_impossible_metadata_is_refused(tmp_path: Path, change: dict[str, Any], why: str) -> None:
    small = small_trace()
    told = {"schema_version": 1, "meta": small.meta, "quality": (), "checksums": True, **change}
    with (tmp_path / "t.parquet").open("wb") as file:
        writer.write(small.events.replace_schema_metadata({KEY: Stored(**told).json()}), file, 10, {})
    with pytest.raises(SourceError, match=why):
        run_folder.read_stored(tmp_path / "t.parquet")


@pytest.mark.parametrize(
    ("samples", "why"),
    [
        (([1], [1]), "no stack"),
        (([1], [-1]), "no stack"),
        (([1, 2], [0]), "no stack"),
        (([2**60], [0]), "64 bits"),
    ],
)
def test_samples_without_a_stack_are_refused(tmp_path: Path, samples: tuple[list[int], ...], why: str) -> None:
    after_us, stack = samples
    content = {"0": {"stacks": ["a"], "after_us": after_us, "stack": stack}}
    path = older_file(tmp_path / "t.parquet", samples=content)
    with pytest.raises(SourceError, match=why):
        run_folder.read_stored(path)


def older_file(path: Path, **facts: Any) -> Path:
    """Write a file of format 1, whose metadata has more fields."""
    trace = small_trace()
    stored = {"schema_version": 1, "meta": {**msgspec.to_builtins(trace.meta), **facts}, "quality": []}
    pq.write_table(trace.events.replace_schema_metadata({KEY: json.dumps(stored)}), path)
    return path


def record(folder: Path, cycle: int, rank: int = 0) -> Path:
    small = small_trace(f"cycle {cycle}")
    window = (1000 * cycle, 1000 * cycle + 100)
    meta = msgspec.structs.replace(small.meta, ranks=(rank,), recording=f"r{rank}", cycle=cycle, window_ns=window)
    step = np.where(small.ints("step") >= 0, small.ints("step") + 100 * cycle, -1)
    return store.write_cycle(Trace(small.with_ints(step=step).events, meta, small.quality), folder)


@pytest.mark.parametrize("damage", ["empty", "footer", "cells"])
def test_partial_keeps_the_files_that_are_not_damaged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], damage: str
) -> None:
    files = [record(tmp_path, cycle) for cycle in range(3)]
    data = bytearray(files[1].read_bytes())
    data[{"empty": 0, "footer": -100, "cells": 100}[damage]] ^= 1
    files[1].write_bytes(b"" if damage == "empty" else data)
    assert main(["summary", str(tmp_path)]) == 2
    error = capsys.readouterr().err
    assert files[1].name in error
    assert "--partial" in error
    found = load(tmp_path, partial=True)
    assert len(found) == 2 * len(small_trace())
    assert {"ranks-left-out", "missing-cycles"} <= codes(found) | {"missing-cycles"}
    assert main(["summary", str(tmp_path), "--partial"]) == 0
    assert "1 of 3 files could not be read" in " ".join(capsys.readouterr().out.split())


def test_a_folder_of_damaged_files_only_is_refused_with_partial_too(tmp_path: Path) -> None:
    record(tmp_path, 0).write_bytes(b"")
    with pytest.raises(SourceError, match="not a readable"):
        load(tmp_path, partial=True)


def test_no_flipped_bit_changes_the_step_times(tmp_path: Path) -> None:
    times = {"0": TimedSteps((TimedStep(0, False, 12345, 111), TimedStep(1, True, 23456, 222)), cpus=2)}
    small = small_trace()
    path = store.write_cycle(with_clock(small, {"0": TimedSteps()}), tmp_path)
    store.write_steps(store.steps_path(path), times)
    assert run_folder.read_stored(path).step_clocks == times
    data = store.steps_path(path).read_bytes()
    for bit in range(8 * len(data)):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        store.steps_path(path).write_bytes(flipped)
        found = run_folder.read_stored(path)
        assert found.step_clocks == times or "step-times-damaged" in codes(found)
