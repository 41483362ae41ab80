"""--step-on RANGE: each command that reads profiles takes the ranges of this name as steps."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import perfkit_core
from perfkit_core.trace.model.trace import with_rank
from perfkit_core.trace.storage.store import write_cycle
from tests.support.small_trace import small_trace

pytestmark = pytest.mark.bare

LABEL_NS = 8_000_000
"""Duration of the label in each of the two steps of the small trace, whose steps take 9 ms."""


@pytest.fixture
def ranks(tmp_path: Path) -> list[Path]:
    """Return the run folders of two ranks."""
    for rank in (0, 1):
        write_cycle(with_rank(small_trace(), rank), tmp_path / f"rank{rank}")
    return [tmp_path / "rank0", tmp_path / "rank1"]


def durations(out: str) -> list[int]:
    return [row["dur_ns"] for row in json.loads(out)["views"]["steps"]]


@pytest.mark.parametrize("reading", [(), ("--workers", "2")])
def test_summary(perfkit, ranks: list[Path], reading: tuple[str, ...]) -> None:
    asked = ("--view", "steps", "--format", "json", *reading)
    assert durations(perfkit("summary", *ranks, *asked).out) == [9_000_000, 9_000_001] * 2
    assert durations(perfkit("summary", *ranks, *asked, "--step-on", "lab.l").out) == [LABEL_NS] * 4
    assert perfkit_core.summarize(ranks, "steps", step_on="label")["dur_ns"].tolist() == [LABEL_NS] * 4


def test_shards(perfkit, ranks: list[Path], tmp_path: Path) -> None:
    part = tmp_path / "all.perfkit.partial"
    assert perfkit("summary", *ranks, "--view", "steps", "--shard", "1/1", "-o", part, "--step-on", "label").code == 0
    assert durations(perfkit("summary", part, "--format", "json").out) == [LABEL_NS] * 4
    code, _, err = perfkit("summary", part, "--step-on", "label")
    assert (code, err.count("\n")) == (2, 1)


def test_the_other_commands(perfkit, run: Path, tmp_path: Path) -> None:
    asked = ("--step-on", "label")
    out = perfkit("summary", run, *asked).out
    assert out.rstrip().endswith("--step-on label")
    assert perfkit("report", run, "-o", tmp_path / "page.html", *asked).code == 0
    assert "8.00 ms" in (tmp_path / "page.html").read_text()
    advised = json.loads(perfkit("advise", run, "--format", "json", *asked).out)
    assert advised["base"]["recorded_ns"] == LABEL_NS
    identity = perfkit("advise", run, "--identity", "--format", "json", *asked)
    assert json.loads(identity.out)["views"]["identity"][0]["step_ns"] == LABEL_NS
    compared = json.loads(perfkit("compare", run, run, "--format", "json", *asked).out)
    assert [step["dur_ns"] for step in compared["views"]["steps"]] == [LABEL_NS] * 4
    written = tmp_path / "steps.perfkit.parquet"
    assert perfkit("export", run, "-o", written, *asked).code == 0
    assert perfkit_core.summarize(written, "steps")["dur_ns"].tolist() == [LABEL_NS] * 2


@pytest.mark.parametrize("command", ["summary", "advise", "report", "export --to chrome -o out.json"])
def test_an_unknown_range_is_one_line(
    perfkit, run: Path, tmp_path: Path, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code, _, err = perfkit(*command.split(), run, "--step-on", "nothing")
    assert (code, err.count("\n")) == (2, 1)
    assert "--step-on 'nothing'" in err
