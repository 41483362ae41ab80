"""Tests that stored runs of older versions stay readable, with the numbers of the framework's own profiler."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from perfkit_core.cli.main import main
from perfkit_core.plugins.contracts import ViewRequest
from perfkit_core.readers.load import load
from perfkit_core.trace.model import schema
from perfkit_core.views.operators import operators
from tests.data.store_runs import TIMES
from tests.support.paths import DATA

pytestmark = pytest.mark.bare
FOLDERS = sorted(path for path in (DATA / "runs").iterdir() if path.is_dir())


@pytest.mark.parametrize("framework", ["torch", "paddle"])
@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_stored_runs_of_each_format_are_read(folder: Path, framework: str) -> None:
    native = json.loads((DATA / f"{framework}-mlp.native.json").read_text())
    assembled = load(folder / "assembled" / framework)
    streamed = load(folder / "streamed" / f"{framework}.perfkit.parquet")
    source = load(DATA / f"{framework}-mlp.json.gz")
    assert assembled.step_clocks == TIMES
    for trace in (assembled, streamed):
        table = operators.table(trace, ViewRequest()).set_index("name")
        assert len(table) > 10
        for operator, row in table.iterrows():
            for column in {"calls", "total_cpu_ns", "self_cpu_ns"} & set(native[operator]):
                assert row[column] == native[operator][column], (operator, column)
        for column in ("name", "kind", "start_ns", "dur_ns", "self_ns", "parent", "launched_by", "step", "phase"):
            assert trace.events[column].to_pylist() == source.events[column].to_pylist(), column


def test_the_present_format_is_kept_for_later_versions() -> None:
    versions = [json.loads((folder / "provenance.json").read_text())["schema_version"] for folder in FOLDERS]
    assert schema.SCHEMA_VERSION in versions


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_commands_read_them(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = str(folder / "assembled" / "torch")
    for command in (["summary"], ["runs"], ["advise"], ["compare", run]):
        assert main([*command, run] if command[0] != "runs" else ["runs", str(folder / "assembled")]) == 0, command
        assert capsys.readouterr().out
