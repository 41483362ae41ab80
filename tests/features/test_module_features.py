"""The layers of a recorded training are those that ``describe`` finds, in both frameworks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from perfkit_core.api import summarize
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


def test_a_recording_contains_the_layers_and_parameters_that_describe_finds(trained: tuple[Path, Any]) -> None:
    run, described = trained
    layers = summarize(run, "modules").dropna(subset="module").set_index("module")["parameters"]
    table = described.to_pandas().set_index("module")
    assert layers.to_dict() == table["parameters"].to_dict()
    assert table["self_parameters_ratio"].sum() == pytest.approx(1)
    assert table.loc["blocks.0.short", "outputs"] == "2×4×4×4 float32"
    assert table.loc["attention.linear1", "flops"] == 2 * (2 * 16) * 4 * 8
