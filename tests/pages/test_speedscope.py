"""speedscope itself imports the exports for it, for pprof and for flame graphs, with every span and every weight."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from perfkit_core import export, load
from tests.support import speedscope

FILES = (
    "torch/h100-vit.json.gz",
    "paddle/cpu-3.3.1/mlp_medium_mem/cycle0.pb.gz",
    "paddle/gpu-synthetic/gpu1.pb",
)


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return speedscope.install(tmp_path_factory.mktemp("speedscope"))


@pytest.fixture
def read(new_context: Callable[..., Any], page: Path, tmp_path: Path) -> Callable[[Path], dict[str, Any]]:
    context = new_context(accept_downloads=True)
    return lambda file: speedscope.imported(context.new_page(), page, file, tmp_path)


def spans(data: dict[str, Any]) -> Counter[tuple[str, int, int]]:
    """Return how often each frame is open from when to when, in ns since its profile begins. speedscope has no events
    without a duration, so they are left out."""
    frames = data["shared"]["frames"]
    counts: Counter[tuple[str, int, int]] = Counter()
    for profile in data["profiles"]:
        starts: list[int] = []
        for event in profile["events"]:
            at = event["at"] - profile["startValue"]
            if event["type"] == "O":
                starts.append(at)
            elif (start := starts.pop()) < at:
                counts[f"{profile['name']}: {frames[event['frame']]['name']}", start, at] += 1
    return counts


def weights(data: dict[str, Any]) -> Counter[str]:
    """Return the weight of each stack without the stacks below it. speedscope saves weights as time that passes."""
    frames = data["shared"]["frames"]
    sums: Counter[str] = Counter()
    for profile in data["profiles"]:
        stack: list[str] = []
        last = profile["startValue"]
        for event in profile["events"]:
            sums[";".join(stack)] += event["at"] - last
            last = event["at"]
            if event["type"] == "O":
                stack.append(frames[event["frame"]]["name"])
            else:
                stack.pop()
    return +sums


@pytest.mark.parametrize("name", FILES)
def test_speedscope_has_every_span_with_a_duration(name: str, read: Any, traces: Path, tmp_path: Path) -> None:
    file = tmp_path / "t.speedscope.json"
    export(load(traces / name), file)
    assert spans(read(file)) == spans(json.loads(file.read_bytes()))


@pytest.mark.parametrize("name", FILES[:1])
def test_speedscope_has_every_stack_of_pprof_and_folded_files(
    name: str, read: Any, traces: Path, tmp_path: Path
) -> None:
    trace = load(traces / name)
    export(trace, tmp_path / "t.pb.gz")
    export(trace, tmp_path / "t.folded")
    lines = [line.rpartition(" ") for line in (tmp_path / "t.folded").read_text("utf-8").splitlines()]
    expected = Counter({stack: int(weight) for stack, _, weight in lines if int(weight)})
    assert weights(read(tmp_path / "t.folded")) == expected
    assert sum(weights(read(tmp_path / "t.pb.gz")).values()) == sum(expected.values())
