"""Exports of real recordings of both frameworks."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import perfkit_core
from perfkit_core.trace.model.trace import Trace
from tests.support import chrome_check
from tests.support.paths import DATA

NATIVE = {"torch": "torch-mlp.json.gz", "paddle": "paddle-mlp.json.gz"}


@pytest.fixture(params=NATIVE)
def framework(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def native(framework: str) -> list[dict[str, Any]]:
    """Return the timeline of the framework's own file, read with json."""
    return chrome_check.events(DATA / NATIVE[framework])


@pytest.fixture
def found(framework: str) -> Trace:
    return perfkit_core.load(DATA / NATIVE[framework])


def test_the_timeline_has_every_box_of_the_native_one(
    found: Trace, native: list[dict[str, Any]], tmp_path: Path
) -> None:
    perfkit_core.export(found, tmp_path / "t.json")
    events = chrome_check.events(tmp_path / "t.json")
    chrome_check.check(events)
    drawn = Counter(e["cat"] for e in events if e["ph"] == "X")
    assert drawn == Counter(e["cat"] for e in native if e.get("ph") == "X" and e.get("cat") != "Trace")
    assert sum(drawn.values()) > 50


def test_python_and_cpp_rows_are_those_of_paddle(tmp_path: Path) -> None:
    """Paddle writes the row of each event as its tid."""
    native = chrome_check.events(DATA / NATIVE["paddle"])
    expected = Counter((e["cat"], e["tid"].partition("(")[2]) for e in native if e.get("ph") == "X")
    perfkit_core.export(perfkit_core.load(DATA / NATIVE["paddle"]), tmp_path / "t.json")
    events = chrome_check.events(tmp_path / "t.json")
    rows = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"}
    mine = Counter((e["cat"], rows[e["pid"], e["tid"]].partition("(")[2]) for e in events if e["ph"] == "X")
    assert mine == expected
    assert {row for _, row in expected} == {"Python)", "C++)"}


def test_stacks_and_timelines_for_other_tools(found: Trace, tmp_path: Path) -> None:
    perfkit_core.export(found, tmp_path / "t.folded")
    lines = (tmp_path / "t.folded").read_text(encoding="utf-8").splitlines()
    assert sum(int(line.rpartition(" ")[2]) for line in lines) == int(found.to_pandas()["self_ns"].sum())
    perfkit_core.export(found, tmp_path / "t.speedscope.json")
    profiles = json.loads((tmp_path / "t.speedscope.json").read_bytes())["profiles"]
    memory = int(found.rows("kind", "memory").sum())
    assert sum(len(profile["events"]) for profile in profiles) == 2 * (len(found) - memory)


def test_the_list_of_runs_leads_to_both_frameworks() -> None:
    table = perfkit_core.list_runs(DATA, read_files=True).set_index("path")
    for name in NATIVE:
        row = table.loc[str(DATA / NATIVE[name])]
        loaded = perfkit_core.load(DATA / NATIVE[name])
        assert row["framework"].startswith(name)
        assert (row["events"], row["findings"]) == (len(loaded), len(loaded.quality))
        assert row["median_step_ns"] > 0
