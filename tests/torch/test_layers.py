"""``annotate`` and ``describe`` in torch: hooks, FLOPs against torch's FlopCounterMode, and models of every kind."""

from __future__ import annotations

import contextlib
import copy
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as functional
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

import perfkit
from perfkit_core.plugins.contracts import ViewRequest
from perfkit_core.trace.model.trace import Trace
from perfkit_core.views import modules
from perfkit_core.views.modules import layer_flops
from perfkit_torch import annotate, describe, trace_handler
from perfkit_torch.layers import FRAMEWORK, TorchHooks
from tests.support.torch_layers import Net, picture


def record(models: dict[str, nn.Module], step: Callable[[], Any], folder: Path, **options: Any) -> Trace:
    """Record one step of annotated models, which are called by their names."""
    cpu = [torch.profiler.ProfilerActivity.CPU]
    with contextlib.ExitStack() as annotations:
        for name, model in models.items():
            annotations.enter_context(annotate(model, name=name))
        with torch.profiler.profile(activities=cpu, on_trace_ready=trace_handler(folder), **options):
            step()
    return perfkit.load(folder)


def labels(profiler: Any) -> list[str]:
    return [event.name for event in profiler.events() if event.name.startswith("perfkit")]


# -- hooks ---------------------------------------------------------------------------------------------------------


def test_torch_without_a_recording_flag_keeps_its_hooks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(torch.autograd.profiler, "_run_on_profiler_start")
    model = nn.Linear(2, 2)
    with annotate(model) as handle:
        model(torch.ones(1, 2))
        assert not handle.log.calls
        monkeypatch.undo()
        with torch.profiler.profile() as profiler:
            model(torch.ones(1, 2))
    assert labels(profiler).count("perfkit.module::Linear") == 1
    assert not model._forward_hooks


def test_torchs_own_functions_are_restored() -> None:
    model = nn.Linear(2, 2)
    with annotate(model):
        assert torch.autograd.profiler._run_on_profiler_start.__module__ != "torch.autograd.profiler"
    assert torch.autograd.profiler._run_on_profiler_start.__module__ == "torch.autograd.profiler"


def test_a_profiler_that_runs_already_gets_labels_too() -> None:
    model = nn.Linear(2, 2)
    with torch.profiler.profile() as profiler, annotate(model):
        model(torch.ones(1, 2))
    assert labels(profiler) == ["perfkit.module::Linear"]


def test_an_annotation_does_not_keep_its_model_alive() -> None:
    before = len(FRAMEWORK.active)
    model = nn.Linear(2, 2)
    annotate(model)
    assert len(FRAMEWORK.active) == before + 1
    del model
    assert len(FRAMEWORK.active) == before


class Raises(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(2, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.inner(x)
        raise KeyError("a user's own error")


def test_a_layer_that_raises_ends_its_label(tmp_path: Path) -> None:
    model = nn.ModuleList([Raises(), nn.Linear(2, 2)])

    def step() -> None:
        with pytest.raises(KeyError):
            model[0](torch.ones(1, 2))
        model[1](torch.ones(1, 2))

    with annotate(model), torch.profiler.profile(on_trace_ready=trace_handler(tmp_path)):
        step()
    table = perfkit.summarize(tmp_path, "modules").set_index("module")
    assert table["calls"].dropna().to_dict() == {"ModuleList": 0, "0": 1, "0.inner": 1, "1": 1}
    assert table.loc[["0.inner", "1"], "depth"].tolist() == [2, 1]


def test_a_recording_that_ends_within_a_call_ends_its_labels() -> None:
    """torch would write the end of a label that ends in a later recording into freed memory."""
    profiler = torch.profiler.profile()

    class Stops(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            assert len(TorchHooks.calls.stack) == 2
            profiler.stop()
            assert not TorchHooks.calls.stack
            return x

    model = nn.Sequential(Stops())
    with annotate(model):
        profiler.start()
        model(torch.ones(1))
    assert not TorchHooks.calls.stack


def test_gradients_are_those_without_labels() -> None:
    torch.manual_seed(1)
    model, inputs = Net(), picture()

    def gradients() -> list[torch.Tensor]:
        model.zero_grad()
        model(inputs)["logits"].square().sum().backward()
        return [p.grad.clone() for p in model.parameters() if p.grad is not None]

    model.eval()  # so that running statistics do not change
    plain = gradients()
    with annotate(model), torch.profiler.profile():
        labelled = gradients()
        copy.deepcopy(model)(inputs)
        pickle.loads(pickle.dumps(model))(inputs)
        with torch.no_grad():
            model(inputs)
    assert all(torch.equal(one, other) for one, other in zip(plain, labelled, strict=True))


@pytest.mark.parametrize("when", ["before", "while recording"])
def test_a_compiled_model_computes_the_same(when: str) -> None:
    torch._dynamo.reset()
    model, inputs = nn.Sequential(nn.Linear(4, 4), nn.ReLU()), torch.randn(2, 4)
    wanted = model(inputs)
    compiled = torch.compile(model, backend="eager")
    with annotate(compiled):
        if when == "before":
            compiled(inputs)
        with torch.profiler.profile():
            assert torch.equal(compiled(inputs), wanted)


def test_data_parallel_keeps_the_names_of_the_model() -> None:
    model = nn.DataParallel(nn.Sequential(nn.Linear(2, 2)))
    with annotate(model), torch.profiler.profile() as profiler:
        model(torch.ones(1, 2))
    assert set(labels(profiler)) == {"perfkit.module::Sequential", "perfkit.module:0:Linear"}


# -- FLOPs ---------------------------------------------------------------------------------------------------------

Layer = tuple[Callable[[], nn.Module], tuple[tuple[int, ...], ...]]
LAYERS: dict[str, Layer] = {
    "Linear": (lambda: nn.Linear(6, 8), ((4, 6),)),
    "grouped_Conv2d": (lambda: nn.Conv2d(4, 8, 3, groups=2, padding=1), ((2, 4, 9, 9),)),
    "ConvTranspose2d": (lambda: nn.ConvTranspose2d(4, 6, 3, stride=2), ((2, 4, 7, 7),)),
    "several": (
        lambda: nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(inplace=True), nn.Flatten(), nn.Linear(4 * 6 * 6, 5)),
        ((2, 3, 8, 8),),
    ),
    "MultiheadAttention": (lambda: nn.MultiheadAttention(16, 4, batch_first=True), ((2, 5, 16),) * 3),
    "cross_attention": (lambda: nn.MultiheadAttention(16, 4, batch_first=True), ((2, 5, 16), (2, 7, 16), (2, 7, 16))),
    "attention_with_other_widths": (
        lambda: nn.MultiheadAttention(16, 4, kdim=6, vdim=4, batch_first=True), ((2, 5, 16), (2, 7, 6), (2, 7, 4)),
    ),
    "LSTMCell": (lambda: nn.LSTMCell(6, 10), ((4, 6),)),
    "GRUCell": (lambda: nn.GRUCell(6, 10), ((4, 6),)),
    "RNNCell": (lambda: nn.RNNCell(6, 10), ((4, 6), (4, 10))),
}  # fmt: skip


def flops_of_roots(trace: Trace) -> dict[str, int]:
    table = modules.table(trace, ViewRequest())
    roots = table[(table["depth"] == 0) & table["module"].notna()]
    return dict(zip(roots["module"], roots["flops"].astype(int), strict=True))


@pytest.mark.parametrize("gradients", [(False, False, False), (True, True, True), (True, False, False)], ids=str)
def test_flops_of_layers_equal_torchs_counter(gradients: tuple[bool, ...], tmp_path: Path) -> None:
    """Formulas give them if no shapes were recorded, also for the backward pass, for which torch's operators have no
    FLOPs."""
    torch.manual_seed(0)
    models, runs, expected = {}, {}, {}
    for name, (make, shapes) in LAYERS.items():
        model = models[name] = make()
        inputs = [torch.randn(shape, requires_grad=wanted) for shape, wanted in zip(shapes, gradients, strict=False)]
        inputs = inputs[:1] * 3 if name == "MultiheadAttention" else inputs

        def run(model: nn.Module = model, inputs: list[torch.Tensor] = inputs) -> None:
            with sdpa_kernel(SDPBackend.MATH):
                result = model(*inputs)
                (result[0] if isinstance(result, tuple) else result).sum().backward()

        runs[name] = run
        run()
        with FlopCounterMode(display=False) as counter:
            run()
        expected[name] = int(counter.get_total_flops())
    # the counter counts pairs of channels in different groups in the weight's gradient
    expected["grouped_Conv2d"] = 2 * 2 * 8 * 9 * 9 * 2 * 3 * 3 * (2 + gradients[0])

    def step() -> None:
        for run in runs.values():
            run()

    without = record(models, step, tmp_path / "without")
    assert flops_of_roots(without) == expected
    assert int(layer_flops(without).sum()) == sum(expected.values())
    assert flops_of_roots(record(models, step, tmp_path / "with", record_shapes=True)) == expected
    assert flops_of_roots(record(models, step, tmp_path / "f", record_shapes=True, with_flops=True)) == expected


def test_recurrent_layers_have_backward_flops(tmp_path: Path) -> None:
    x = torch.randn(5, 4, 6)
    models = {
        f"{kind.__name__}{number}": kind(6, 10, **options)
        for kind in (nn.LSTM, nn.GRU, nn.RNN)
        for number, options in enumerate(({}, {"num_layers": 2}, {"bidirectional": True}))
    }
    trace = record(models, lambda: [model(x)[0].sum().backward() for model in models.values()], tmp_path)
    layers = {layer.path.removesuffix("."): layer for layer in modules.module_tree(trace).stored() if layer}
    for name, model in models.items():
        elements = {name: weight.numel() for name, weight in model.named_parameters() if "weight" in name}
        first = sum(size for weight, size in elements.items() if weight.startswith("weight_ih_l0"))
        assert layers[name].flops == 2 * 20 * sum(elements.values())
        assert layers[name].backward_flops == 2 * layers[name].flops - 2 * 20 * first  # the input has no gradient


class Attention(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return functional.scaled_dot_product_attention(x, x, x)


def test_attention_by_a_function_counts_if_shapes_were_recorded_and_is_unknown_otherwise(tmp_path: Path) -> None:
    model, x = nn.Sequential(nn.Linear(8, 8), Attention()), torch.randn(2, 4, 5, 8)
    mixing = 2 * 2 * 2 * 4 * 5 * 5 * 8
    for shapes, expected in ((True, [mixing]), (False, [])):
        trace = record({"model": model}, lambda: model(x), tmp_path / str(shapes), record_shapes=shapes)
        table = modules.table(trace, ViewRequest()).set_index("class")
        assert table["self_flops"].dropna().loc[lambda flops: flops.index == "Attention"].tolist() == expected


# -- describe ------------------------------------------------------------------------------------------------------


def test_describe_counts_what_torch_counts() -> None:
    net = Net()
    table = describe(net, picture()).to_pandas().set_index("module")
    assert all(module.training for module in net.modules())
    assert table.loc["Net", "parameter_bytes"] == sum(p.numel() * p.element_size() for p in net.parameters())
    counter = FlopCounterMode(display=False)
    with torch.no_grad(), sdpa_kernel(SDPBackend.MATH), counter:
        net(picture())
    assert table.loc["Net", "flops"] == counter.get_total_flops()
    layers = {path or "Net": module for path, module in net.named_modules()}
    for module, row in table.iterrows():
        assert row["parameters"] == sum(p.numel() for p in layers[module].parameters())
        assert row["self_parameters"] == sum(p.numel() for p in layers[module].parameters(recurse=False))
    assert table.loc["blocks.0.short", "inputs"] == "2×3×4×4 float32"
    assert table.loc["shared", "calls"] == 2


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.pair, self.cell = nn.LSTM(6, 10, 2), nn.Bilinear(10, 10, 4), nn.GRUCell(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.lstm(x)[0][-1]
        return self.cell(self.pair(hidden, hidden))


@pytest.mark.parametrize(("make", "shape"), [(Net, (2, 3, 4, 4)), (Recurrent, (5, 3, 6))])
def test_formulas_of_a_recording_equal_the_flops_that_describe_counts(
    make: Callable[[], nn.Module], shape: tuple[int, ...]
) -> None:
    model, inputs = make(), torch.randn(shape)
    counted = {layer.path: layer.flops for layer in describe(model, inputs).layers if layer.calls}
    with annotate(model) as handle, torch.profiler.profile(), torch.no_grad():
        model(inputs)
        found = handle.architecture()
    assert found is not None
    by_formula = {layer.path: layer.flops for layer in found.layers if layer.calls}
    own = {path for path, module in FRAMEWORK.named(model) if type(module).__module__.startswith("torch.nn")}
    assert {path: by_formula[path] for path in own & set(counted)} == {
        path: counted[path] for path in own & set(counted)
    }
    assert by_formula[""] is None


def test_lazy_parameters_are_counted_once_the_model_has_run() -> None:
    lazy = nn.Sequential(nn.LazyLinear(4))
    assert describe(lazy).to_pandas()["parameters"].isna().all()
    assert describe(lazy, torch.ones(2, 3)).to_pandas().loc[0, "parameters"] == 3 * 4 + 4
