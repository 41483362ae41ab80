"""The memory at the peak of two runs, by line of code, by operator and by category, against walks of the recordings."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from perfkit_core.api import summarize
from perfkit_core.cli.main import main
from tests.support.allocator import Allocator, stack, written


def snapshot(path: Path, sizes: dict[int, int]) -> Path:
    """Write a snapshot in which each line of net.py allocates a block, and the first block is freed at the end."""
    allocator = Allocator()
    addresses = [allocator.alloc(size, stack(("net.py", line, "forward"))) for line, size in sizes.items()]
    allocator.free(addresses[0])
    return written(allocator.snapshot(), path)


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Path, Path]:
    base = snapshot(tmp_path / "base.pickle", {1: 100, 2: 200, 3: 300})
    return base, snapshot(tmp_path / "other.pickle", {1: 100, 2: 2000, 4: 50})


def rows(capsys: pytest.CaptureFixture[str], *arguments: object) -> list[dict[str, Any]]:
    assert main(["compare", *map(str, arguments), "--format", "json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)["views"].values()
    return list(found)


def test_lines_of_code_of_two_snapshots(pair: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    """Line 2 holds 1,800 bytes more, line 3 is gone, and line 4 is new. The differences sum to that of the peaks."""
    for by in ((), ("--by", "line")):
        found = rows(capsys, *pair, "--view", "memory_peak", *by)
        key = "line" if by else "name"
        assert [(row[key], row["base_bytes"], row["other_bytes"], row["difference_bytes"]) for row in found] == [
            ("net.py:2 (forward)", 200, 2000, 1800), ("net.py:3 (forward)", 300, 0, -300),
            ("net.py:4 (forward)", 0, 50, 50), ("net.py:1 (forward)", 100, 100, 0),
        ]  # fmt: skip
        assert [row["difference_blocks"] for row in found] == [0, -1, 1, 0]
    (by_stack,) = [row for row in rows(capsys, *pair, "--view", "memory_peak", "--by", "stack=1")
                   if row["stack"] == "net.py(2): forward"]  # fmt: skip
    assert by_stack["difference_bytes"] == 1800


def test_a_snapshot_against_itself(pair: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    for view in ("memory_peak", "memory_categories"):
        assert {row["difference_bytes"] for row in rows(capsys, pair[0], pair[0], "--view", view)} == {0}


def test_the_first_look_at_two_snapshots(pair: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", *map(str, pair)]) == 0
    text = capsys.readouterr().out
    assert "Peak of cuda:0: 600 B in base, 2.10 KiB in other (+1.51 KiB)." in text
    assert "--view memory_peak" in text


def test_groupings_need_two_runs(pair: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", *map(str, (*pair, pair[0])), "--by", "line"]) == 2
    assert "--by requires two runs" in capsys.readouterr().err
    assert main(["compare", *map(str, pair), "--by", "nonsense"]) == 2
    assert "cannot be grouped by 'nonsense'" in capsys.readouterr().err


def test_differences_of_real_recordings_sum_to_those_of_the_peaks(
    traces: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = [traces / "torch/h100-bert-small.json.gz", traces / "paddle/cpu-3.3.1/mlp_medium_mem/cycle0.pb.gz"]
    tables = [summarize(run, "memory_places")[["device", "peak_bytes"]].astype(object).to_numpy() for run in runs]
    base, other = (Counter[str](dict(table)) for table in tables)
    for arguments in (("memory_peak", "--by", "line"), ("memory_categories",)):
        sums = Counter[str]()
        for row in rows(capsys, *runs, "--view", *arguments):
            sums[row["device"]] += row["difference_bytes"]
            assert row["difference_bytes"] == row["other_bytes"] - row["base_bytes"]
        assert "cpu" in sums
        assert all(sums[device] == other[device] - base[device] for device in sums)
