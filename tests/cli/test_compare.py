"""perfkit compare: exit codes of the gate, pooled captures, several runs, units of work, and one-line errors. The
outputs of commands are in ``tests/golden/cli``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from perfkit_core.trace.storage.store import write_cycle
from tests.support.stepped_trace import stepped_trace

STEADY = [20.0, 20.1, 20.0, 19.9, 20.0, 20.1, 20.0, 19.9]
SLOWER = [ms * 1.1 for ms in STEADY]
QUIET = ("--noise", "1%")


def record(folder: Path, steps: list[float], **what: object) -> Path:
    write_cycle(stepped_trace(steps, source=str(folder), **what), folder)
    return folder


def explained(content: dict[str, Any]) -> int:
    """Return the sum of the attribution, over the rows without children."""
    tree = content["attribution_tree"]
    parents = {row["parent"] for row in tree}
    assert parents
    total = sum(row["difference_ns"] for row in content["attribution"])
    assert total == sum(row["difference_ns"] for at, row in enumerate(tree) if at not in parents)
    return total


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with three equal captures of the base, three captures that are 10 % slower, an HTML page and a
    table."""
    folder = tmp_path_factory.mktemp("runs")
    for at in range(3):
        record(folder / f"main-{at}", [ms + at / 100 for ms in STEADY])
        record(folder / f"change-{at}", [ms + at / 100 for ms in SLOWER])
    (folder / "report.html").write_text("<html></html>")
    return folder


def test_the_gate_decides_the_exit_code(transcript, runs: Path) -> None:
    """Single captures need the noise of the machine, and a single step cannot tell. Times of 10 and of 20 samples are
    compared per sample."""
    for name, ms in (("short", 20), ("short-change", 40)):
        record(runs.parent / "short" / name, [ms])
    pair, limit = "compare main-0 change-0", "--fail-on 'step_time > 3%'"
    samples = f"{pair} --noise 1% --samples 10,20"
    transcript(
        "compare-gate",
        f"{pair} --noise 1% {limit} --view gate,step_time",
        f"compare change-0 main-0 --noise 1% {limit} --view gate",
        f"{pair} --noise 1% --fail-on 'step_time > 15%' --view gate",
        f"{pair} {limit} --view gate",
        f"compare ../short/short ../short/short-change {limit} --view gate",
        f"compare main-0 main-1 change-0 --noise 1% {limit} --view gate",
        folder=runs,
    )
    gates = [f"{samples} {limit} --view gate", f"{samples} {limit} --per sample --view gate"]
    transcript("compare-samples", f"{samples} --view step_time", *gates, folder=runs)


def test_comparisons_for_people(transcript, runs: Path) -> None:
    """A comment is short. Pooled captures are not named after the first."""
    transcript("compare", "compare main-0 change-0 --noise 1%", "compare main-0,main-1 main-0 --view step_time",
               "compare main-0 main-1 change-0 --noise 1% --view step_parts", folder=runs)  # fmt: skip
    transcript("compare-markdown", "compare main-0 change-0 --format markdown --fail-on 'step_time > 3%'", folder=runs)


@pytest.mark.parametrize("form", ["pattern", "commas", "baseline"])
def test_captures_of_a_side_are_pooled(perfkit, runs: Path, form: str) -> None:
    """Three captures per side show how much equal runs differ, so no noise is assumed."""
    sides = [[str(runs / f"{side}-{at}") for at in range(3)] for side in ("main", "change")]
    given = {
        "pattern": [str(runs / "main-*"), str(runs / "change-*")],
        "commas": [",".join(side) for side in sides],
        "baseline": [",".join(sides[1]), *[text for one in sides[0] for text in ("--baseline", one)]],
    }[form]
    code, out, _ = perfkit("compare", *given, "--fail-on", "step_time > 3%", "--format", "json")
    content = json.loads(out)
    found = content["step_time"]
    assert code == 1
    assert (found["captures"], found["steps"], found["verdict"]) == ([3, 3], [24, 24], "slower")
    assert found["difference"] == found["other"] - found["base"] == 2_000_000
    assert found["interval"][0] <= 2_000_000 <= found["interval"][1]
    assert content["gate"][0]["result"] == "failed"
    assert explained(content) == found["difference"]


def test_json_has_what_programs_need(perfkit, runs: Path) -> None:
    content = json.loads(perfkit("compare", runs / "main-0", runs / "change-0", "--format", "json").out)
    step_time = content["step_time"]
    assert {"base", "other", "difference", "interval", "verdict"} <= set(step_time)
    assert (step_time["base"], step_time["other"]) == (20_000_000, 22_000_000)
    assert set(content["matched_share"]) == {"base", "other"}
    assert "operators" in content
    assert explained(content) == step_time["difference"] == 2_000_000


def test_more_than_two_runs_have_a_column_each(perfkit, runs: Path) -> None:
    """Each run has a column. Files that are not profiles are skipped, with a note."""
    given = sorted(str(path) for path in runs.iterdir())
    code, out, err = perfkit("compare", *given, *QUIET, "--baseline", runs / "main-0", "--format", "json")
    assert code == 0
    assert err == f"skipped (not a profile): {runs / 'report.html'}\n"
    content = json.loads(out)
    assert [run["name"] for run in content["runs"]][:3] == ["main-0", "change-0", "change-1"]
    assert list(content["views"]["step_parts"][0])[:3] == ["name", "main-0_ns", "change-0_ns"]


def test_what_is_new_since_an_earlier_pair(perfkit, runs: Path, tmp_path: Path) -> None:
    """In both pairs, the base is slower than the other run. The other run has become 2 ms slower since the earlier
    pair, and only these 2 ms are new."""
    theirs = record(tmp_path / "theirs", [ms + 10 for ms in STEADY])
    given = ("compare", theirs, runs / "change-0", *QUIET, "--against", theirs, runs / "main-0")
    code, out, _ = perfkit(*given, "--format", "json")
    assert code == 0
    content = json.loads(out)
    assert content["new"]["step_time"]["difference_ns"] == 2_000_000
    assert sum(row["difference_ns"] for row in content["new"]["causes"]) == 2_000_000
    assert content["step_time"]["difference"] == -8_000_000
    code, out, _ = perfkit(*given, "--format", "markdown")
    text = "since the earlier pair of runs, the difference in step time (other run minus base run) changed by +2.00 ms"
    assert text in out
    assert "<summary>New differences by cause</summary>" in out


def test_a_comment_has_all_tables_on_request(perfkit, runs: Path) -> None:
    given = ("compare", runs / "main-0", runs / "change-0", "--format", "markdown")
    assert "## Overview" not in perfkit(*given).out
    assert "## Overview" in perfkit(*given, "--view", "all").out


def test_the_same_work(perfkit, runs: Path) -> None:
    """20 ms for 10 samples is 2 ms per sample, and 22 ms for 20 samples is 1.1 ms per sample."""
    given = ("compare", runs / "main-0", runs / "change-0", *QUIET, "--samples", "10,20", "--format", "json")
    content = json.loads(perfkit(*given).out)
    assert (content["normalised"]["base"], content["normalised"]["other"]) == (2_000_000, 1_100_000)


def test_mistakes_are_one_line(transcript, runs: Path) -> None:
    options = ["--fail-on 'speed > 3%'", "--fail-on 'operators.speed > 3%'", "--per token", "--per flop"]
    options += ["--samples 10,20,30", "--tokens 10", "--noise 2", "--view memory", "--view gate", "--view nope"]
    options += ["--format nope", "--format csv"]
    lines = [f"compare main-0 change-0 {option}" for option in options]
    lines += [
        "compare , main-0",
        "compare '' main-0",
        "compare ' , ' main-0",
        "compare main-0",
        "compare main-0 'no-*'",
    ]
    lines += ["compare main-0 main-1 gone", "compare main-0 main-1 main-2 --against main-0 main-1"]
    transcript("compare-mistakes", *lines, folder=runs)
