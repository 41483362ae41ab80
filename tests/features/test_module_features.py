"""The scope view and the model architecture of tfprof, used from the command line with both frameworks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from perfkit_core.cli.main import main
from tests.support import paddle_layers

pytestmark = pytest.mark.filterwarnings("ignore:When training, we now always track")


@pytest.fixture(scope="module")
def trained_torch(torch: Any, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    """Train and record a model. Return the run folder, and the description of the model."""
    from perfkit_torch import annotate, describe, trace_handler
    from tests.support.torch_layers import Net, picture

    model, run = Net(), tmp_path_factory.mktemp("torch")
    schedule = torch.profiler.schedule(wait=0, warmup=1, active=2, repeat=1)
    with annotate(model), torch.profiler.profile(schedule=schedule, on_trace_ready=trace_handler(run)) as profiler:
        for _ in range(3):
            model(picture())["logits"].sum().backward()
            profiler.step()
    return run, describe(model, picture())


@pytest.fixture(scope="module")
def trained_paddle(paddle: Any, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    from perfkit_paddle import annotate, describe, trace_handler

    model, run = paddle_layers.net(paddle), tmp_path_factory.mktemp("paddle")
    profiler = paddle.profiler.Profiler(scheduler=(1, 3), on_trace_ready=trace_handler(run))
    with annotate(model), profiler:
        for _ in range(3):
            paddle_layers.train(paddle, model)
            profiler.step()
    return run, describe(model, paddle.ones([2, 3, 4, 4]))


@pytest.fixture
def trained(request: pytest.FixtureRequest, framework: str) -> tuple[Path, Any]:
    run: tuple[Path, Any] = request.getfixturevalue(f"trained_{framework}")
    return run


def summary(run: Path, *options: str) -> list[dict[str, Any]]:
    """Return the rows of ``perfkit summary --view modules``."""
    output = run.with_suffix(".json")
    assert main(["summary", str(run), "--view", "modules", "-o", str(output), *options]) == 0
    rows: list[dict[str, Any]] = json.loads(output.read_text(encoding="utf-8"))["views"]["modules"]
    return rows


def test_the_layers_of_a_recorded_training(trained: tuple[Path, Any]) -> None:
    run, _ = trained
    rows = summary(run)
    by_name = {row["module"]: row for row in rows}
    assert [row["depth"] for row in rows if row["module"] == "Net"] == [0]
    assert by_name["attention.linear1"]["calls"] == 2
    assert by_name["attention.linear1"]["backward_calls"] == 2
    assert sum(row["self_cpu_ratio"] for row in rows) == pytest.approx(1)
    assert all(0 <= row["self_cpu_ratio"] <= row["total_cpu_ratio"] <= 1 for row in rows)
    assert by_name["attention"]["flops"] >= by_name["attention.linear1"]["flops"] > 0
    phases = [row["name"] for row in summary(run, "--by", "phase") if row["depth"] == 0]
    assert phases[:2] == ["forward", "backward"]
    short = summary(run, "--start", "^attention$", "--depth", "1", "--min", "parameters=20")
    assert short[0]["name"] == "attention"
    assert {row["depth"] for row in short} == {0, 1}
    assert all(row["parameters"] >= 20 for row in short)


def test_a_recording_contains_the_layers_and_parameters_that_describe_finds(trained: tuple[Path, Any]) -> None:
    run, described = trained
    layers = {row["module"]: row for row in summary(run) if row["module"]}
    table = described.to_pandas().set_index("module")
    assert {module: row["parameters"] for module, row in layers.items()} == table["parameters"].to_dict()
    assert table.loc["Net", "parameters_ratio"] == 1
    assert table["self_parameters_ratio"].sum() == pytest.approx(1)
    assert table.loc["blocks.0.short", "outputs"] == "2×4×4×4 float32"
    assert table.loc["attention.linear1", "flops"] == 2 * (2 * 16) * 4 * 8
    text = str(described)
    assert "\n    0 " in text
    assert "attention" in text
