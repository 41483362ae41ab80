"""Timelines and Parquet files with references, kinds, names, lanes, ranks or indices that cannot be: one clear line,
and never a crash. The commands run in another process."""

from __future__ import annotations

import gzip
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.data.reports import files, hostile
from tests.data.reports.attack import everything
from tests.data.reports.formats import write
from tests.reports.commands import run_all
from tests.reports.conftest import assert_clear
from tests.support.paths import DATA

pytestmark = [pytest.mark.bare, pytest.mark.slow]

COMMANDS = ("summary", "report", "export", "compare", "scrub")
FEW = ("summary", "report")
"""The commands for inputs beside the reported ones. The first reads columns as they are needed, the second all."""
BASES = {"torch": DATA / "torch-mlp.json.gz", "paddle": DATA / "paddle-mlp.pb", "device": None}
BEYOND = (1, 10, 1_000_000)


def _command(name: str, path: Path, base: Path) -> list[str]:
    out = path.with_name(f"{path.name}-{name}")
    return [name, *{
        "summary": [f"{path}", "--view", "operators", "--format", "json"], "report": [f"{path}", "-o", f"{out}.html"],
        "export": [f"{path}", "-o", f"{out}.csv"], "compare": [f"{base}", f"{path}"],
        "scrub": [f"{path}", "-o", f"{out}.json"],
    }[name]]  # fmt: skip


@pytest.fixture(scope="module")
def timelines(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str, str], dict[str, Any]]:
    """Results of the commands by base, change and command. The change "" is the timeline as it was exported."""
    folder = tmp_path_factory.mktemp("timelines")
    device = write(folder / "device.json", files()["clean.json"])
    bases = {name: folder / f"{name}.timeline.json" for name in BASES}
    run_all([["export", f"{BASES[name] or device}", "--to", "chrome", "-o", f"{path}"] for name, path in bases.items()])
    keys, commands = [], []
    for base, path in bases.items():
        timeline = json.loads(path.read_text())
        changes = {"": hostile.nothing, **hostile.REPORTED} | (hostile.DERIVED if base == "device" else {})
        if base == "torch":
            changes |= hostile.IMPOSSIBLE
        for change, function in changes.items():
            file = folder / f"{base}-{change}.json.gz"
            file.write_bytes(gzip.compress(json.dumps(hostile.changed(timeline, function)).encode(), 1))
            names = COMMANDS if base == "torch" and change in {"", *hostile.REPORTED} else FEW
            keys += [(base, change, name) for name in names]
            commands += [_command(name, file, path) for name in names]
    results = dict(zip(keys, run_all(commands), strict=True))
    shutil.rmtree(folder)
    return results


def _check(results: dict[Any, dict[str, Any]], base: str, change: str) -> None:
    """Check that each command ends, and that those that fail do so with one clear line."""
    for command in (name for name in COMMANDS if (base, change, name) in results):
        result = results[base, change, command]
        assert result["code"] in (0, 2), f"{command}: {result}"
        assert "Traceback" not in result["err"]
        if result["code"]:
            assert_clear(result["err"])
            assert len(result["err"]) < 600
            assert result["err"].strip().isprintable()


def _content(results: dict[Any, dict[str, Any]], base: str, change: str) -> dict[str, Any] | None:
    """Return what summary prints, or None if it fails."""
    result = results[base, change, "summary"]
    return json.loads(result["out"]) if result["code"] == 0 else None


@pytest.mark.parametrize("base", BASES)
def test_timelines_as_they_were_exported_are_read(timelines, base: str) -> None:
    assert {result["code"] for (name, change, _), result in timelines.items() if (name, change) == (base, "")} == {0}


@pytest.mark.parametrize("change", hostile.REPORTED)
@pytest.mark.parametrize("base", BASES)
def test_reported_timelines(timelines, base: str, change: str) -> None:
    """The commands fail. Parents may also be computed again."""
    _check(timelines, base, change)
    codes = {result["code"] for (name, made, _), result in timelines.items() if (name, made) == (base, change)}
    assert codes == {2} or (change in ("lastparent", "selfparent", "min") and codes == {0})
    if codes == {0} and change != "min":
        assert _content(timelines, base, change)["views"] == _content(timelines, base, "")["views"]


@pytest.mark.parametrize("change", hostile.DERIVED)
def test_fields_that_follow_from_others_are_refused_or_computed_again(timelines, change: str) -> None:
    _check(timelines, "device", change)
    content = _content(timelines, "device", change)
    assert content is None or content["views"] == _content(timelines, "device", "")["views"]


@pytest.mark.parametrize("change", hostile.IMPOSSIBLE)
def test_fields_that_cannot_be_are_refused_or_reported(timelines, change: str) -> None:
    _check(timelines, "torch", change)
    content = _content(timelines, "torch", change)
    if content is not None:
        codes, sound = (
            {one["code"] for one in found["quality"]} for found in (content, _content(timelines, "torch", ""))
        )
        assert codes - sound, "the file is accepted without a word"


@pytest.fixture(scope="module")
def dictionaries(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, int, str], dict[str, Any]]:
    """Results of the commands by column, number of entries that are missing, and command."""
    folder = tmp_path_factory.mktemp("dictionaries")
    trace, base = write(folder / "trace.json", everything), folder / "base.parquet"
    run_all([["export", f"{trace}", "-o", f"{base}"]])
    keys, commands = [], []
    for column in hostile.text_columns(base):
        for beyond in (0, *BEYOND):
            file = folder / f"{column}-{beyond}.perfkit.parquet"
            hostile.short_dictionary(base, column, beyond, file)
            names = [name for name in COMMANDS if name != "compare"] if column == "name" else ["scrub"]
            keys += [(column, beyond, name) for name in names if beyond != 10 or column == "name"]
            commands += [_command(name, file, base) for name in names if beyond != 10 or column == "name"]
    results = dict(zip(keys, run_all(commands), strict=True))
    shutil.rmtree(folder)
    return results


@pytest.mark.parametrize("beyond", [0, *BEYOND])
def test_dictionaries_shorter_than_their_indices(dictionaries, beyond: int) -> None:
    """Each column of texts. scrub and export read all of them. Without a missing entry, the file is read."""
    columns = {column for column, _, _ in dictionaries}
    assert {"name", "kind", "category", "device", "phase", "shapes", "dtypes"} <= columns
    results = {
        (column, command): result for (column, missing, command), result in dictionaries.items() if missing == beyond
    }
    assert {key: result["code"] for key, result in results.items()} == dict.fromkeys(results, 2 if beyond else 0)
    for result in results.values():
        if result["code"]:
            assert_clear(result["err"])
