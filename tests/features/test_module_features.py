"""The scope view (D1) and the model architecture (D2) of tfprof, used from the command line with both frameworks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from perfkit_core.cli.main import main
from tests.support import paddle_layers

pytestmark = pytest.mark.filterwarnings("ignore:When training, we now always track")


def torch_run(run: Path) -> tuple[Any, Any]:
    """Train and record a model. Return the model and its description."""
    torch = pytest.importorskip("torch")
    from perfkit_torch import annotate, describe, trace_handler
    from tests.support.torch_layers import Net, picture

    model = Net()
    schedule = torch.profiler.schedule(wait=0, warmup=1, active=2, repeat=1)
    with annotate(model), torch.profiler.profile(schedule=schedule, on_trace_ready=trace_handler(run)) as profiler:
        for _ in range(3):
            model(picture())["logits"].sum().backward()
            profiler.step()
    return model, describe(model, picture())


def paddle_run(paddle: Any, run: Path) -> tuple[Any, Any]:
    from perfkit_paddle import annotate, describe, trace_handler

    model = paddle_layers.net(paddle)
    profiler = paddle.profiler.Profiler(scheduler=(1, 3), on_trace_ready=trace_handler(run))
    with annotate(model), profiler:
        for _ in range(3):
            paddle_layers.train(paddle, model)
            profiler.step()
    del profiler
    return model, describe(model, paddle.ones([2, 3, 4, 4]))


def summary(run: Path, *options: str) -> list[dict[str, Any]]:
    """Return the rows of ``perfkit summary --view modules``."""
    output = run.with_suffix(".json")
    assert main(["summary", str(run), "--view", "modules", "-o", str(output), *options]) == 0
    rows: list[dict[str, Any]] = json.loads(output.read_text(encoding="utf-8"))["views"]["modules"]
    return rows


def check_scope(run: Path) -> None:
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


def check_architecture(run: Path, described: Any) -> None:
    """The recording contains the same layers and parameters as the result of ``describe``."""
    kept = {row["module"]: row for row in summary(run) if row["module"]}
    table = described.to_pandas().set_index("module")
    assert {module: row["parameters"] for module, row in kept.items()} == table["parameters"].to_dict()
    assert table.loc["Net", "parameters_ratio"] == 1
    assert table["self_parameters_ratio"].sum() == pytest.approx(1)
    assert table.loc["blocks.0.short", "outputs"] == "2×4×4×4 float32"
    assert table.loc["attention.linear1", "flops"] == 2 * (2 * 16) * 4 * 8
    text = str(described)
    assert "\n    0 " in text
    assert "attention" in text


def test_D1_scope_torch(torch: Any, tmp_path: Path) -> None:
    torch_run(tmp_path / "run")
    check_scope(tmp_path / "run")


def test_D1_scope_paddle(paddle: Any, tmp_path: Path) -> None:
    paddle_run(paddle, tmp_path / "run")
    check_scope(tmp_path / "run")


def test_D2_architecture_torch(torch: Any, tmp_path: Path) -> None:
    check_architecture(tmp_path / "run", torch_run(tmp_path / "run")[1])


def test_D2_architecture_paddle(paddle: Any, tmp_path: Path) -> None:
    check_architecture(tmp_path / "run", paddle_run(paddle, tmp_path / "run")[1])
