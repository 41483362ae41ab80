"""``annotate`` and ``describe`` in Paddle: gradients, FLOPs by hand, and Paddle's own counters."""

from __future__ import annotations

import contextlib
import copy
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

paddle_installed = pytest.importorskip("paddle", reason="needs paddle: pip install 'perfkit[paddle]'")

from paddle import nn  # noqa: E402

import perfkit  # noqa: E402
from perfkit_core.plugins.contracts import ViewRequest  # noqa: E402
from perfkit_core.trace.model.trace import Trace  # noqa: E402
from perfkit_core.views import modules  # noqa: E402
from perfkit_paddle import annotate, describe, trace_handler  # noqa: E402

pytestmark = [
    pytest.mark.filterwarnings("ignore:When training, we now always track"),
    pytest.mark.filterwarnings("ignore:[\\s\\S]*Tensor do not have 'place' interface"),
]


def record(paddle: Any, models: dict[str, Any], step: Callable[[], Any], folder: Path, steps: int = 1) -> Trace:
    """Record steps of annotated models, which are called by their names."""
    cpu = [paddle.profiler.ProfilerTarget.CPU]
    with contextlib.ExitStack() as annotations:
        for name, model in models.items():
            annotations.enter_context(annotate(model, name=name))
        profiler = paddle.profiler.Profiler(targets=cpu, scheduler=(1, 1 + steps), on_trace_ready=trace_handler(folder))
        with profiler:
            for _ in range(1 + steps):
                step()
                profiler.step()
        del profiler
        for model in models.values():
            copy.deepcopy(model)
    return perfkit.load(folder)


def first(result: Any) -> Any:
    while isinstance(result, (tuple, list)):
        result = result[0]
    return result


def test_a_timer_has_no_hooks_and_paddles_own_functions_are_restored(paddle: Any) -> None:
    model, start = nn.Linear(2, 2), paddle.profiler.Profiler.start
    with annotate(model):
        assert paddle.profiler.Profiler.start is not start
        timer = paddle.profiler.Profiler(timer_only=True)
        timer.start()
        assert not model._forward_pre_hooks
        timer.stop()
    assert paddle.profiler.Profiler.start is start


class Split(nn.Layer):
    def forward(self, x: Any) -> Any:
        one, other = paddle_installed.split(x, 2, axis=-1)
        values, _ = paddle_installed.topk(one, 2)
        return values.sum() + paddle_installed.concat([one, other]).mean() + x[:, 1:3].max()


class InPlace(nn.Layer):
    def forward(self, x: Any) -> Any:
        y = x * 2
        y.add_(paddle_installed.ones_like(y))
        return nn.functional.relu_(y)


class Raising(nn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(8, 8)

    def forward(self, x: Any) -> Any:
        y = self.inner(x)
        try:
            nn.Linear(3, 3)(x)
            self.inner(x[:, :3])
        except Exception:
            return y
        return x


MODELS: dict[str, tuple[Callable[[], Any], list[int]]] = {
    "linear": (lambda: nn.Linear(8, 8), [4, 8]),
    "lstm": (lambda: nn.LSTM(8, 8, 2, direction="bidirect"), [2, 5, 8]),
    "gru": (lambda: nn.GRU(8, 8), [2, 5, 8]),
    "attention": (lambda: nn.MultiHeadAttention(8, 2), [2, 5, 8]),
    "norm": (lambda: nn.Sequential(nn.LayerNorm(8), nn.GELU(), nn.Softmax()), [2, 8]),
    "split": (Split, [4, 8]),
    "in_place": (InPlace, [4, 8]),
    "raising": (Raising, [4, 8]),
    "identity": (nn.Identity, [4, 8]),
    "transposed": (lambda: nn.Conv2DTranspose(3, 4, 3), [2, 3, 5, 5]),
}
"""Layers whose nodes have many outputs, that run as one operator, or that change their inputs."""


def test_gradients_are_those_without_labels(paddle: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "perfkit")
    models, found = {name: make() for name, (make, _) in MODELS.items()}, []

    def step() -> None:
        found.append({})
        for name, model in models.items():
            model.clear_gradients()
            x = paddle.ones(MODELS[name][1])
            x.stop_gradient = False
            first(model(x)).square().sum().backward()
            found[-1][name] = [np.asarray(p.grad.numpy()) for p in [x, *model.parameters()] if p.grad is not None]

    step()
    trace = record(paddle, models, step, tmp_path, steps=2)
    assert len(found) == 4
    for name, expected in found[0].items():
        for later in found[1:]:
            assert all(np.array_equal(one, other) for one, other in zip(expected, later[name], strict=True)), name
    calls = perfkit.summarize(trace, "modules").set_index("module")["calls"]
    assert calls[list(models)].tolist() == [2] * len(models)
    assert "could not be labelled" not in caplog.text


def test_compiled_layers_compute_the_same(paddle: Any, tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    batch = paddle.ones([2, 4])
    wanted = model(batch).numpy()
    compiled = paddle.jit.to_static(model, full_graph=True)
    results: list[Any] = []
    trace = record(paddle, {"model": model}, lambda: results.append(compiled(batch).numpy()), tmp_path, steps=2)
    assert all(np.allclose(result, wanted) for result in results)
    assert perfkit.summarize(trace, "modules").set_index("module").loc["model", "calls"] == 2


LAYERS: dict[str, tuple[Callable[[], Any], tuple[int, ...], int]] = {
    "Linear": (lambda: nn.Linear(6, 8), (4, 6), 2 * 4 * 6 * 8),
    "grouped_Conv2D": (lambda: nn.Conv2D(4, 8, 3, groups=2, padding=1), (2, 4, 9, 9), 2 * 2 * 9 * 9 * 8 * 2 * 9),
    "Conv2DTranspose": (lambda: nn.Conv2DTranspose(4, 6, 3, stride=2), (2, 4, 7, 7), 2 * 2 * 7 * 7 * 4 * 6 * 9),
    "LSTM": (lambda: nn.LSTM(6, 10), (4, 5, 6), 2 * 20 * 4 * 10 * (6 + 10)),
    "two_layers_of_GRU": (lambda: nn.GRU(6, 10, 2), (4, 5, 6), 2 * 20 * 3 * 10 * (6 + 10 + 10 + 10)),
    "SimpleRNN_in_both_directions": (
        lambda: nn.SimpleRNN(6, 10, direction="bidirect"), (4, 5, 6), 2 * 20 * 2 * 10 * (6 + 10),
    ),
    "LSTMCell": (lambda: nn.LSTMCell(6, 10), (4, 6), 2 * 4 * 4 * 10 * (6 + 10)),
    "GRUCell": (lambda: nn.GRUCell(6, 10), (4, 6), 2 * 4 * 3 * 10 * (6 + 10)),
    "SimpleRNNCell": (lambda: nn.SimpleRNNCell(6, 10), (4, 6), 2 * 4 * 10 * (6 + 10)),
    "RNN_of_a_cell": (lambda: nn.RNN(nn.LSTMCell(6, 10)), (4, 5, 6), 2 * 20 * 4 * 10 * (6 + 10)),
}  # fmt: skip


def test_flops_of_layers(paddle: Any, tmp_path: Path) -> None:
    """Formulas give those of a recording, and operators those of ``describe``. The input has no gradient."""
    models = {name: make() for name, (make, _, _) in LAYERS.items()}
    inputs = {name: paddle.randn(shape) for name, (_, shape, _) in LAYERS.items()}

    def step() -> None:
        for name, model in models.items():
            first(model(inputs[name])).sum().backward()

    trace = record(paddle, models, step, tmp_path)
    table = modules.table(trace, ViewRequest()).set_index("module")["flops"]
    layers = [layer for layer in modules.module_tree(trace).stored() if layer]
    for name, (_, _, expected) in LAYERS.items():
        parts = [layer for layer in layers if layer.path.split(".")[0] == name]
        backward = sum(layer.backward_flops or 0 for layer in parts)
        assert sum(layer.flops or 0 for layer in parts) == expected, name
        assert expected <= backward <= 2 * expected, name
        assert table[name] == expected + backward, name
        assert describe(models[name], inputs[name]).to_pandas()["flops"].iloc[0] == expected, name


class Attention(nn.Layer):
    def forward(self, x: Any) -> Any:
        return nn.functional.scaled_dot_product_attention(x, x, x)


def test_attention_by_a_function_is_unknown(paddle: Any, tmp_path: Path) -> None:
    """The layers around it are in the forward phase."""
    model, x = nn.Sequential(nn.Linear(8, 8), Attention()), paddle.randn((2, 5, 4, 8))
    trace = record(paddle, {"model": model}, lambda: model(x), tmp_path)
    table = modules.table(trace, ViewRequest()).set_index("class")
    assert table["self_flops"].isna()["Attention"]
    assert table.loc["Linear", "self_flops"] == 2 * 2 * 5 * 4 * 8 * 8
    table = modules.table(trace, ViewRequest(by=("phase",)))
    phase = table["name"].where(table["depth"] == 0).ffill()
    assert phase[(table["calls"].fillna(0) > 0)].unique().tolist() == ["forward"]


def test_describe_counts_what_paddle_counts(paddle: Any, capsys: pytest.CaptureFixture[str]) -> None:
    from paddle.utils.flops import flops as counted

    model = nn.Sequential(
        nn.Conv2D(4, 6, 3, bias_attr=False), nn.BatchNorm2D(6), nn.ReLU(), nn.Flatten(), nn.Linear(6 * 16, 10)
    )
    model.train()
    found = describe(model, paddle.ones([2, 4, 6, 6]))
    assert all(layer.training for layer in model.sublayers(include_self=True))
    table = found.to_pandas().set_index("module")
    native = paddle.summary(model, (2, 4, 6, 6))
    capsys.readouterr()
    assert table.loc["Sequential", "parameters"] == native["total_params"]
    assert table.loc["Sequential", "trainable_parameters"] == native["trainable_params"]
    shapes = {"Bias": [], "Input": [[2, 4, 6, 6]], "Filter": [list(model[0].weight.shape)]}
    attributes = {"paddings": [0, 0], "strides": [1, 1], "dilations": [1, 1], "groups": 1}
    convolution = counted("conv2d", shapes, attributes)
    product = counted("matmul", {"X": [[2, 6 * 16]], "Y": [[6 * 16, 10]]}, {})
    assert (table.loc["0", "flops"], table.loc["4", "flops"]) == (convolution, product)
    assert table.loc["Sequential", "flops"] == convolution + product
    assert "Architecture of Sequential" in str(found)


def test_described_flops_of_attention(paddle: Any) -> None:
    """They are counted by hand: twice (rows × inner × columns) of every product."""
    batch, length, width, heads = 2, 5, 8, 2
    attention = describe(nn.MultiHeadAttention(width, heads), paddle.ones([batch, length, width]))
    projections = 4 * (batch * length) * width * width
    scores = batch * heads * length * (width // heads) * length
    assert attention.to_pandas()["flops"].iloc[0] == 2 * (projections + 2 * scores)
