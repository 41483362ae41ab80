"""``annotate`` and ``describe`` in Paddle: the recorded labels, and numbers compared with Paddle's."""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import perfkit_core as perfkit
from perfkit_core.testing.traces import check_trace
from perfkit_core.trace.model.trace import Trace
from tests.support import paddle_layers

pytestmark = [
    pytest.mark.filterwarnings("ignore:When training, we now always track"),
    pytest.mark.filterwarnings("ignore:[\\s\\S]*Tensor do not have 'place' interface"),
]

MADE_BY = {"Conv2dGradNodeFinal": "Conv2D", "BatchNormGradNode": "BatchNorm2D",
           "LayerNormGradNode": "LayerNorm", "RnnGradNode": "LSTM",
           "DropoutGradNode": "Dropout"}  # fmt: skip
"""Graph nodes that only one class of layers creates in this test. The attention's nodes are distinguished by their
dropout."""


def record(paddle: Any, run: Path, step: Callable[[], Any], steps: int = 2) -> Trace:
    """Run ``steps`` recorded steps after two steps that are not recorded."""
    from perfkit_paddle import trace_handler

    profiler = paddle.profiler.Profiler(scheduler=(2, 2 + steps), on_trace_ready=trace_handler(run))
    with profiler:
        for _ in range(steps + 2):
            step()
            profiler.step()
    del profiler
    return perfkit.load(run)


def table_of(trace: Trace) -> pd.DataFrame:
    return perfkit.summarize(trace, "modules").set_index("module")


def test_calls_backward_passes_and_nodes_of_every_layer(paddle: Any, tmp_path: Path) -> None:
    from perfkit_paddle import annotate

    model = paddle_layers.net(paddle)
    with annotate(model):
        trace = record(paddle, tmp_path, lambda: paddle_layers.train(paddle, model, shift=paddle.ones([4])))
    check_trace(trace)
    table = table_of(trace)
    never = {"blocks", "unused", "lstm.0", "lstm.0.cell"} & set(table.index)
    calls = {module: 2 for module in table.index if isinstance(module, str)} | {"shared": 4}
    assert {"blocks", "unused"} <= never
    assert table["calls"].dropna().to_dict() == calls | dict.fromkeys(never, 0)
    assert table["backward_calls"].dropna().to_dict() == calls | dict.fromkeys(never, 0)
    classes = {path: type(layer).__name__ for path, layer in model.named_sublayers()}
    frame = trace.to_pandas()
    for name, layer in MADE_BY.items():
        nodes = frame[frame["name"].isin([name, f"Global_{name}"])]  # names in Paddle 2.6 have no prefix
        inside = nodes[nodes["module"] != "attention.self_attn"]  # the attention also has a dropout
        assert len(inside)
        assert {classes[module] for module in inside["module"]} == {layer}, name


def test_gradients_accumulate_in_the_layer_of_the_parameter(paddle: Any, tmp_path: Path) -> None:
    """The expected layers come from Paddle's gradient hooks on the parameters, so they do not depend on perfkit's
    labels of layers."""
    from perfkit_paddle import annotate

    model = paddle_layers.net(paddle)
    owners = {}
    for name, parameter in model.named_parameters():
        if not parameter.stop_gradient:
            owners[f"truth {name}"] = name.rpartition(".")[0]
            parameter.register_hook(_saying(paddle, f"truth {name}"))
    with annotate(model):
        trace = record(paddle, tmp_path, lambda: paddle_layers.train(paddle, model))
    frame = trace.to_pandas()
    marks = frame[frame["name"].str.startswith("truth ")]
    found = {str(name): set(rows["module"]) for name, rows in marks.groupby("name", observed=True)}
    assert set(owners) - set(found) == {"truth unused.weight", "truth unused.bias"}
    lstm = {name for name in found if name.startswith("truth lstm")}
    assert {name: {owners[name]} for name in set(found) - lstm} == {name: found[name] for name in set(found) - lstm}
    assert all(found[name] == {"lstm"} for name in lstm)  # a fused operator runs all cells


def _saying(paddle: Any, name: str) -> Callable[[Any], None]:
    def hook(gradient: Any) -> None:
        with paddle.profiler.RecordEvent(name):
            pass

    return hook


def test_the_rows_sum_to_paddles_own_operator_times(paddle: Any, tmp_path: Path) -> None:
    """The expected times come from Paddle's tree of the same recording."""
    from perfkit_paddle import annotate, trace_handler

    results: list[Any] = []
    model = paddle_layers.net(paddle)
    handler = trace_handler(tmp_path, also=[lambda p: results.append(p.profiler_result)])
    with annotate(model):
        with paddle.profiler.Profiler(on_trace_ready=handler) as profiler:
            paddle_layers.train(paddle, model)
            profiler.step()
        del profiler
    wanted = sum(_outermost(root) for root in results[0].get_data().values())
    table = perfkit.summarize(tmp_path, "modules")
    assert int(table["self_cpu_ns"].sum()) == wanted
    assert int(table.loc[table["depth"] == 0, "total_cpu_ns"].sum()) == wanted
    assert int(table.loc[table["depth"] == 0, "total_cpu_ns"].iloc[0]) < wanted


def _outermost(node: Any) -> int:
    if node.type.name in ("Operator", "PythonOp", "Communication"):
        return int(node.end_ns - node.start_ns)
    return sum(map(_outermost, node.children_node))


@pytest.mark.parametrize("kind", ["json", "pb"])
def test_the_exported_file_has_the_same_layers(paddle: Any, tmp_path: Path, kind: str) -> None:
    from perfkit_paddle import annotate, trace_handler

    model, file = paddle_layers.net(paddle), tmp_path / f"trace.{kind}"
    with annotate(model):
        with paddle.profiler.Profiler(on_trace_ready=trace_handler(tmp_path / "run")) as profiler:
            paddle_layers.train(paddle, model)
        profiler.export(str(file), kind)
        del profiler
    live, read = (perfkit.summarize(source, "modules").set_index("module") for source in (tmp_path / "run", file))
    called = live[(live["calls"] > 0) | live["calls"].isna()]
    same = ["class", "calls", "backward_calls", "occurrence"] + (["self_cpu_ns"] if kind == "pb" else [])
    pd.testing.assert_frame_equal(read[same].sort_index(), called[same].sort_index())
    assert live.loc["Net", "parameters"] == sum(int(np.prod(p.shape)) for p in model.parameters())
    assert read["parameters"].isna().all()


def test_labels_leave_phases_and_operators_as_they_are(paddle: Any, tmp_path: Path) -> None:
    from perfkit_paddle import annotate

    model = paddle_layers.net(paddle)
    with annotate(model):
        labelled = record(paddle, tmp_path / "labelled", lambda: paddle_layers.train(paddle, model))
    plain = record(paddle, tmp_path / "plain", lambda: paddle_layers.train(paddle, model))
    keys = ["name", "phase", "calls"]
    one, other = (perfkit.summarize(trace, "operators", by="phase")[keys] for trace in (labelled, plain))
    assert one.sort_values(keys).to_numpy().tolist() == other.sort_values(keys).to_numpy().tolist()
    model_one, model_other = (perfkit.summarize(trace, "model")[["phase", "calls"]] for trace in (labelled, plain))
    assert model_one.to_numpy().tolist() == model_other.to_numpy().tolist()
    assert perfkit.summarize(labelled, "annotations")["name"].str.contains("perfkit").sum() == 0


def test_without_a_profiler_there_are_no_hooks(paddle: Any, tmp_path: Path) -> None:
    from perfkit_paddle import annotate

    model = paddle_layers.net(paddle)
    start = paddle.profiler.Profiler.start
    layers = model.sublayers(include_self=True)
    with annotate(model) as handle:
        assert annotate(model) is handle
        assert not any(layer._forward_pre_hooks or layer._forward_post_hooks for layer in layers)
        profiler = paddle.profiler.Profiler(on_trace_ready=lambda _: None)
        profiler.start()
        assert all(layer._forward_pre_hooks and layer._forward_post_hooks for layer in layers)
        profiler.stop()
        del profiler
        assert not any(layer._forward_pre_hooks or layer._forward_post_hooks for layer in layers)
        timer = paddle.profiler.Profiler(timer_only=True)
        timer.start()
        assert not any(layer._forward_pre_hooks for layer in layers)
        timer.stop()
    assert paddle.profiler.Profiler.start is start


def cases(paddle: Any) -> dict[str, tuple[Any, list[int]]]:
    """Return layers whose nodes have many outputs, that run as one operator, or that change their inputs."""
    nn = paddle.nn

    class Split(nn.Layer):
        def forward(self, x: Any) -> Any:
            one, other = paddle.split(x, 2, axis=-1)
            values, _ = paddle.topk(one, 2)
            return values.sum() + paddle.concat([one, other]).mean() + x[:, 1:3].max()

    class InPlace(nn.Layer):
        def forward(self, x: Any) -> Any:
            y = x * 2
            y.add_(paddle.ones_like(y))
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

    return {
        "linear": (nn.Linear(8, 8), [4, 8]), "lstm": (nn.LSTM(8, 8, 2, direction="bidirect"), [2, 5, 8]),
        "gru": (nn.GRU(8, 8), [2, 5, 8]), "attention": (nn.MultiHeadAttention(8, 2), [2, 5, 8]),
        "norm": (nn.Sequential(nn.LayerNorm(8), nn.GELU(), nn.Softmax()), [2, 8]), "split": (Split(), [4, 8]),
        "in place": (InPlace(), [4, 8]), "raising": (Raising(), [4, 8]), "identity": (nn.Identity(), [4, 8]),
        "transposed": (nn.Conv2DTranspose(3, 4, 3), [2, 3, 5, 5]),
    }  # fmt: skip


@pytest.mark.parametrize("name", ["linear", "lstm", "gru", "attention", "norm", "split", "in place", "raising",
                                  "identity", "transposed"])  # fmt: skip
def test_gradients_are_those_without_labels(
    paddle: Any, tmp_path: Path, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    from perfkit_paddle import annotate

    caplog.set_level(logging.DEBUG, "perfkit")
    model, shape = cases(paddle)[name]
    found = []

    def step() -> None:
        model.clear_gradients()
        x = paddle.ones(shape)
        x.stop_gradient = False
        output = model(x)
        (output[0] if isinstance(output, tuple) else output).square().sum().backward()
        found.append([np.asarray(p.grad.numpy()) for p in [x, *model.parameters()] if p.grad is not None])

    step()
    with annotate(model):
        trace = record(paddle, tmp_path, step)
        copy.deepcopy(model)
    assert len(found) == 5
    for later in found[1:]:
        assert all(np.array_equal(one, other) for one, other in zip(found[0], later, strict=True))
    assert table_of(trace)["calls"].max() >= 2
    assert "could not be labelled" not in caplog.text


def test_compiled_layers_compute_the_same(paddle: Any, tmp_path: Path) -> None:
    from perfkit_paddle import annotate

    model = paddle.nn.Sequential(paddle.nn.Linear(4, 4), paddle.nn.ReLU())
    batch = paddle.ones([2, 4])
    wanted = model(batch).numpy()
    compiled = paddle.jit.to_static(model, full_graph=True)
    results = []
    with annotate(model):
        trace = record(paddle, tmp_path, lambda: results.append(compiled(batch).numpy()))
    assert all(np.allclose(result, wanted) for result in results)
    assert table_of(trace).loc["Sequential", "calls"] == 2


def test_describe_counts_what_paddle_counts(paddle: Any, capsys: pytest.CaptureFixture[str]) -> None:
    from paddle.utils.flops import flops as counted

    from perfkit_paddle import describe

    nn = paddle.nn
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


def test_flops_of_attention_and_recurrent_layers(paddle: Any) -> None:
    """The expected FLOPs are counted by hand: twice (rows × inner × columns) of every product."""
    from perfkit_paddle import describe

    nn = paddle.nn
    batch, length, width, heads = 2, 5, 8, 2
    attention = describe(nn.MultiHeadAttention(width, heads), paddle.ones([batch, length, width]))
    projections = 4 * (batch * length) * width * width
    scores = batch * heads * length * (width // heads) * length
    assert attention.to_pandas()["flops"].iloc[0] == 2 * (projections + 2 * scores)
    lstm = describe(nn.LSTM(3, 7), paddle.ones([batch, length, 3]))
    assert lstm.to_pandas()["flops"].iloc[0] == 2 * batch * length * 4 * 7 * (3 + 7)


def test_tied_parameters_are_counted_once(paddle: Any) -> None:
    from perfkit_paddle import describe

    model = paddle.nn.Sequential(paddle.nn.Linear(3, 3), paddle.nn.Linear(3, 3))
    model[1].weight = model[0].weight
    table = describe(model).to_pandas().set_index("module")
    assert table.loc["Sequential", "parameters"] == 9 + 3 + 3 == sum(int(np.prod(p.shape)) for p in model.parameters())
    assert table.loc["1", "tied"] == "weight = 0.weight"
