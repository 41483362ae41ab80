"""``perfkit calibrate --noise`` with the times of runs that are given instead of measured."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from perfkit_core.measure.calibration import equal_runs
from perfkit_core.measure.verify import runs
from perfkit_core.measure.verify.step_times import StepTimes


def timed(*medians_ms: int) -> list[runs.Timed]:
    every = [StepTimes("fw", "host clock", (ms * 1_000_000,) * 5) for ms in medians_ms]
    return [runs.Timed(one.mean_ns, ("fw",), one) for one in every]


def test_calibrate_runs_the_command_and_says_where_the_noise_is(
    perfkit: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The warm-up run, which takes 900 ms for each step, does not count."""
    results: Iterator[runs.Timed] = iter(timed(900, 100, 102, 98, 100))
    commands = []
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(runs, "run_once", lambda command, metric: commands.append(command) or next(results))
    found = perfkit("calibrate", "--noise", "python a.py", "--runs", 4)
    assert found.code == 0
    assert commands == ["python a.py"] * 5
    text = " ".join(found.out.split())
    assert "4 equal runs of 'python a.py' differ by 1.63% (standard deviation of the median step" in text
    assert "the slowest takes 4.08% longer than the fastest." in text
    assert str(equal_runs.file()) in found.out.replace("\n", "")
    assert "Equal runs on this machine" in perfkit("calibrate", "--show").out
    assert perfkit("calibrate", "--noise", "a", "--runs", 2).code == 2
    assert perfkit("calibrate", "--noise", "a", "--show").code == 2
