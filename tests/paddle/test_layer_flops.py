"""FLOPs of annotated Paddle layers against those of equal torch layers, which are checked with torch's counter."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

paddle = pytest.importorskip("paddle", reason="needs paddle: pip install 'perfkit[paddle]'")

from paddle import nn  # noqa: E402

import perfkit  # noqa: E402
import perfkit.paddle  # noqa: E402
from perfkit_core.plugins.contracts import ViewRequest  # noqa: E402
from perfkit_core.trace.model.architecture import Layer  # noqa: E402
from perfkit_core.views import modules  # noqa: E402

pytestmark = pytest.mark.live

LAYERS: dict[str, tuple[Callable[[], Any], tuple[int, ...], int]] = {
    "Linear": (lambda: nn.Linear(6, 8), (4, 6), 2 * 4 * 6 * 8),
    "grouped Conv2D": (lambda: nn.Conv2D(4, 8, 3, groups=2, padding=1), (2, 4, 9, 9), 2 * 2 * 9 * 9 * 8 * 2 * 9),
    "Conv2DTranspose": (lambda: nn.Conv2DTranspose(4, 6, 3, stride=2), (2, 4, 7, 7), 2 * 2 * 7 * 7 * 4 * 6 * 9),
    "LSTM": (lambda: nn.LSTM(6, 10), (4, 5, 6), 2 * 20 * 4 * 10 * (6 + 10)),
    "two layers of GRU": (lambda: nn.GRU(6, 10, 2), (4, 5, 6), 2 * 20 * 3 * 10 * (6 + 10 + 10 + 10)),
    "SimpleRNN in both directions": (
        lambda: nn.SimpleRNN(6, 10, direction="bidirect"), (4, 5, 6), 2 * 20 * 2 * 10 * (6 + 10),
    ),
    "LSTMCell": (lambda: nn.LSTMCell(6, 10), (4, 6), 2 * 4 * 4 * 10 * (6 + 10)),
    "GRUCell": (lambda: nn.GRUCell(6, 10), (4, 6), 2 * 4 * 3 * 10 * (6 + 10)),
    "SimpleRNNCell": (lambda: nn.SimpleRNNCell(6, 10), (4, 6), 2 * 4 * 10 * (6 + 10)),
    "RNN of a cell": (lambda: nn.RNN(nn.LSTMCell(6, 10)), (4, 5, 6), 2 * 20 * 4 * 10 * (6 + 10)),
}  # fmt: skip


def recorded(model: Any, run: Callable[[], Any], folder: Path) -> Any:
    handler = perfkit.paddle.trace_handler(folder)
    with (
        perfkit.paddle.annotate(model),
        paddle.profiler.Profiler(targets=[paddle.profiler.ProfilerTarget.CPU], on_trace_ready=handler),
    ):
        run()
    return perfkit.load(folder)


def stored(trace: Any) -> list[Layer]:
    return [layer for layer in modules.module_tree(trace).stored() if layer]


@pytest.mark.parametrize("name", LAYERS)
def test_forward_flops_of_a_layer(name: str, tmp_path: Path) -> None:
    make, shape, expected = LAYERS[name]
    model, x = make(), paddle.randn(shape)

    def run() -> None:
        result = model(x)
        while isinstance(result, (tuple, list)):
            result = result[0]
        result.sum().backward()

    trace = recorded(model, run, tmp_path)
    assert sum(layer.flops or 0 for layer in stored(trace)) == expected
    backward = sum(layer.backward_flops or 0 for layer in stored(trace))
    assert expected <= backward <= 2 * expected
    described = perfkit.paddle.describe(model, x).to_pandas()
    assert described["flops"].iloc[0] == expected
    assert modules.table(trace, ViewRequest())["flops"].iloc[0] == expected + backward


def test_attention_by_a_function_is_unknown(tmp_path: Path) -> None:
    class Attention(nn.Layer):
        def forward(self, x: Any) -> Any:
            return nn.functional.scaled_dot_product_attention(x, x, x)

    model, x = nn.Sequential(nn.Linear(8, 8), Attention()), paddle.randn((2, 5, 4, 8))
    table = modules.table(recorded(model, lambda: model(x), tmp_path), ViewRequest()).set_index("class")
    assert table["self_flops"].isna()["Attention"]
    assert table.loc["Linear", "self_flops"] == 2 * 2 * 5 * 4 * 8 * 8


def test_the_root_layer_is_in_the_forward_phase(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 2))
    trace = recorded(model, lambda: model(paddle.randn((4, 6))).sum().backward(), tmp_path)
    table = modules.table(trace, ViewRequest(by=("phase",)))
    phase = table["name"].where(table["depth"] == 0).ffill()
    assert phase[(table["calls"].fillna(0) > 0)].unique().tolist() == ["forward"]
