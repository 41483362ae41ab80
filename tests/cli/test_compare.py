"""perfkit compare: exit codes of the gate, pooled captures, several runs, units of work, and one-line errors."""

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


def test_the_gate_decides_the_exit_code(perfkit, runs: Path, tmp_path: Path) -> None:
    base, other = runs / "main-0", runs / "change-0"
    code, out, err = perfkit("compare", base, other, *QUIET, "--fail-on", "step_time > 3%", "-o", tmp_path / "c.txt")
    assert (code, out) == (1, "")
    assert "perfkit: gate failed: step_time > 3%" in err
    assert f"wrote {tmp_path / 'c.txt'}\n" in err
    assert perfkit("compare", other, base, *QUIET, "--fail-on", "step_time > 3%").code == 0
    assert perfkit("compare", base, other, *QUIET, "--fail-on", "step_time > 15%").code == 0
    assert perfkit("compare", base, other, *QUIET).code == 0


def test_single_captures_need_the_noise_of_the_machine(perfkit, runs: Path) -> None:
    code, out, err = perfkit("compare", runs / "main-0", runs / "change-0", "--fail-on", "step_time > 3%")
    assert (code, err) == (0, "perfkit: gate within noise: step_time > 3%\n")
    assert "Gate: cannot tell; limit exceeded, but not beyond noise: step_time > 3%." in out
    assert "within noise" in out
    words = " ".join(out.split())
    assert "Possibly slower: the median recorded step takes 22.0 ms instead of 20.0 ms" in words
    assert " noise assumed for single captures of host-bound steps; record three captures of each run." in words


def test_a_gate_with_too_few_steps_cannot_tell(perfkit, tmp_path: Path) -> None:
    for name, ms in (("main", 20), ("change", 40)):
        record(tmp_path / name, [ms])
    code, out, err = perfkit("compare", tmp_path / "main", tmp_path / "change", "--fail-on", "step_time > 3%")
    assert (code, err) == (0, "perfkit: gate cannot tell: step_time > 3%\n")
    told = "Gate: cannot tell; limit exceeded, but too few steps or captures to rule out noise: step_time > 3%."
    assert told in " ".join(out.split())


def test_pooled_captures_are_not_named_after_the_first(perfkit, runs: Path) -> None:
    out = perfkit("compare", f"{runs / 'main-0'},{runs / 'main-1'}", runs / "main-0").out
    assert "main-0 against main-0 and 1 more" in out
    assert "itself" not in out


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
    code, out, _ = perfkit("compare", *given[:3], *QUIET, "--fail-on", "step_time > 3%")
    assert code == 0
    assert "3 runs compared" in out


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
    text = "since the earlier pair of runs, the difference in step time (other run minus base run) rose by 2.00 ms"
    assert text in out
    assert "<summary>New differences by cause</summary>" in out
    code, _, err = perfkit("compare", *sorted(runs.glob("main-*")), "--against", theirs, theirs)
    assert (code, err.startswith("perfkit: error: --against requires two runs, not 3")) == (2, True)


def test_more_than_two_runs_have_a_gate(perfkit, runs: Path) -> None:
    given = (runs / "main-0", runs / "main-1", runs / "change-0")
    code, _, err = perfkit("compare", *given, *QUIET, "--fail-on", "step_time > 3%")
    assert (code, err) == (1, "perfkit: gate failed: change-0: step_time > 3%\n")


def test_a_comment_is_short(perfkit, runs: Path) -> None:
    given = ("compare", runs / "main-0", runs / "change-0", "--format", "markdown", "--fail-on", "step_time > 3%")
    short, whole = perfkit(*given).out, perfkit(*given, "--view", "all").out
    assert "| `step_time > 3%` |" in short
    assert "## Overview" not in short
    assert "## Overview" in whole


def test_the_same_work(perfkit, runs: Path) -> None:
    """20 ms for 10 samples is 2 ms per sample, and 22 ms for 20 samples is 1.1 ms per sample. The gate compares times
    per sample."""
    given = ("compare", runs / "main-0", runs / "change-0", *QUIET, "--samples", "10,20", "--format", "json")
    content = json.loads(perfkit(*given).out)
    assert (content["normalised"]["base"], content["normalised"]["other"]) == (2_000_000, 1_100_000)
    assert perfkit(*given, "--fail-on", "step_time > 3%").code == 1
    assert perfkit(*given, "--fail-on", "step_time > 3%", "--per", "sample").code == 0
    out = perfkit("compare", runs / "main-0", runs / "change-0", "--samples", "10,20").words
    assert "The steps do different amounts of work: 10 samples in base and 20 samples in other (as given)." in out


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--fail-on", "speed > 3%"], "'speed' is not a number"),
        (["--fail-on", "operators.speed > 3%"], "operators has no number 'speed'"),
        (["--per", "token"], "the number of tokens per step is unknown; give the numbers with --tokens A,B"),
        (["--per", "flop"], "the number of flops per step is unknown; record with record_shapes=True"),
        (["--samples", "10,20,30"], "must be one positive whole number, or one per run (2 runs)"),
        (["--tokens", "10"], "--tokens requires --per token"),
        (["--noise", "2"], "is not a share; write a percentage"),
        (
            ["--view", "memory"],
            "--fail-on 'memory.COLUMN[ROW] > 3%' compares a number of this view; known:",
        ),
        (["--view", "gate"], "no table 'gate'; this table exists only with --fail-on; known: "),
        (["--view", "nope"], "the comparison has no table 'nope'; known: waterfall, steps, step_time"),
    ],
)
def test_mistakes_are_one_line(perfkit, runs: Path, arguments: list[str], told: str) -> None:
    code, out, err = perfkit("compare", runs / "main-0", runs / "change-0", *arguments)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert told in err


@pytest.mark.parametrize("name", [",", "", " , "])
def test_an_unknown_name_is_one_line(perfkit, runs: Path, name: str) -> None:
    code, out, err = perfkit("compare", name, runs / "main-0")
    assert (code, out) == (2, "")
    assert err == f"perfkit: error: {name!r} names no run; separate the captures of one run by commas, as in A1,A2\n"


def test_missing_runs(perfkit, runs: Path) -> None:
    assert "a comparison needs at least two runs" in perfkit("compare", runs / "main-0").err
    assert "no file or folder matches" in perfkit("compare", runs / "main-0", runs / "no-*").err
    code, _, err = perfkit("compare", runs / "main-0", runs / "main-1", runs / "gone")
    assert (code, err.count("\n")) == (2, 1)
    assert "no such file or folder" in err
