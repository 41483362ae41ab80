"""``annotate`` and ``describe`` in torch: the recorded labels, and numbers compared with torch's."""

from __future__ import annotations

import copy
import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

import perfkit_core as perfkit
from perfkit_core.errors import UsageError
from perfkit_core.testing.traces import check_trace
from perfkit_core.trace.model.trace import Trace
from perfkit_torch import annotate, describe, trace_handler
from perfkit_torch.layers import TorchHooks
from tests.support.torch_layers import Net, picture

MADE_BY = {"ConvolutionBackward0": "Conv2d", "NativeBatchNormBackward0": "BatchNorm2d",
           "NativeLayerNormBackward0": "LayerNorm"}  # fmt: skip
"""Graph nodes that only one class of layers makes."""


def record(run: Path, step: Callable[[], Any], steps: int = 2, **options: Any) -> Trace:
    """Run ``steps`` recorded steps after one step that is not recorded."""
    schedule = torch.profiler.schedule(wait=1, warmup=1, active=steps, repeat=1)
    with torch.profiler.profile(schedule=schedule, on_trace_ready=trace_handler(run), **options) as profiler:
        for _ in range(steps + 2):
            step()
            profiler.step()
    return perfkit.load(run)


def training(model: nn.Module, **keywords: Any) -> Callable[[], Any]:
    inputs = picture()

    def step() -> None:
        model.zero_grad()
        model(inputs, **keywords)["logits"].square().sum().backward()

    return step


@pytest.fixture(scope="module")
def net() -> Net:
    torch.manual_seed(0)
    return Net()


@pytest.fixture(scope="module")
def recorded(net: Net, tmp_path_factory: pytest.TempPathFactory) -> Trace:
    """Record two steps. The trace shows when the gradient of each parameter has been accumulated."""
    handles = [
        p.register_post_accumulate_grad_hook(lambda _, name=name: _say(f"truth {name}"))
        for name, p in net.named_parameters()
    ]
    with annotate(net):
        found = record(tmp_path_factory.mktemp("net"), training(net, shift=torch.ones(4)))
    for handle in handles:
        handle.remove()
    return found


def _say(name: str) -> None:
    with torch.profiler.record_function(name):
        pass


def test_the_trace_is_sound_and_every_call_is_labelled(recorded: Trace) -> None:
    check_trace(recorded)
    table = perfkit.summarize(recorded, "modules").set_index("module")
    calls = {module: 2 for module in table.index if isinstance(module, str)} | {"shared": 4}
    passed_on = {"attention.dropout", "attention.dropout1", "attention.dropout2"}  # these layers return their input
    never = {
        "blocks",
        "unused",
        "attention.self_attn.out_proj",
    }  # an nn.ModuleList, an unused layer, and a layer that only holds parameters
    assert table["calls"].dropna().to_dict() == calls | dict.fromkeys(never, 0)
    assert table["backward_calls"].dropna().to_dict() == calls | dict.fromkeys(never | passed_on, 0)
    assert table.loc["blocks.0.body.2", "class"] == "ReLU"
    assert table.loc["Net", "depth"] == 0
    assert table.loc["blocks.0.body.2", "depth"] == 4


def test_backward_nodes_belong_to_the_layer_that_made_them(recorded: Trace, net: Net) -> None:
    classes = {path or "Net": type(module).__name__ for path, module in net.named_modules()}
    frame = recorded.to_pandas()
    seen = set()
    for name, layer in MADE_BY.items():
        nodes = frame[frame["name"] == name]
        assert {classes[module] for module in nodes["module"]} == {layer}
        seen |= set(nodes["module"])
    assert seen == {"blocks.0.body.0", "blocks.0.short", "blocks.0.body.1", "attention.norm1", "attention.norm2"}


def test_gradients_accumulate_in_the_layer_of_the_parameter(recorded: Trace, net: Net) -> None:
    """The marks are hooks of torch, so the test does not depend on the labels of layers."""
    frame = recorded.to_pandas()
    marks = frame[frame["name"].str.startswith("truth ")]
    owners = {name: name.rpartition(".")[0] or "Net" for name, _ in net.named_parameters()}
    assert len(marks) == 2 * (len(owners) - 2)  # the unused layer has no gradient
    wrong = [(m.name_, m.module) for m in marks.rename(columns={"name": "name_"}).itertuples()
             if owners[m.name_.removeprefix("truth ")] != m.module]  # fmt: skip
    # The output projection of the attention only holds parameters: torch calls the attention, not this layer.
    assert {name for name, _ in wrong} <= {f"truth attention.self_attn.out_proj.{kind}" for kind in ("weight", "bias")}
    assert {module for _, module in wrong} <= {"attention.self_attn"}


def test_the_rows_sum_to_torchs_own_operator_times(net: Net, tmp_path: Path) -> None:
    native: list[Any] = []
    with annotate(net):
        schedule = torch.profiler.schedule(wait=1, warmup=1, active=1, repeat=1)
        handler = trace_handler(tmp_path, also=[lambda p: native.append(p.events())])
        with torch.profiler.profile(schedule=schedule, on_trace_ready=handler) as profiler:
            for _ in range(3):
                training(net)()
                profiler.step()
    table = perfkit.summarize(tmp_path, "modules")
    ours = perfkit.load(tmp_path)
    operators = set(ours.to_pandas().query("kind in ['operator', 'communication']")["name"].astype(str))
    outermost = [event for event in native[0] if event.name in operators and not _inside(event, operators)]
    wanted = sum(round(event.cpu_time_total * 1000) for event in outermost)
    assert int(table["self_cpu_ns"].sum()) == wanted
    assert int(table.loc[table["depth"] == 0, "total_cpu_ns"].sum()) == wanted


def _inside(event: Any, operators: set[str]) -> bool:
    above = event.cpu_parent
    return above is not None and (above.name in operators or _inside(above, operators))


def test_flops_of_a_training_step_equal_those_of_torchs_counter(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 4, 3, groups=1), nn.ReLU(inplace=True), nn.ConvTranspose2d(4, 6, 2, stride=2), nn.Flatten(2),
        nn.Linear(16, 5), nn.LSTM(5, 7),
    )  # fmt: skip
    inputs = torch.randn(2, 3, 4, 4, requires_grad=True)

    def step() -> None:
        model[:5](inputs).sum().backward()

    with annotate(model):
        trace = record(tmp_path, step)
    counter = FlopCounterMode(display=False)
    with counter:
        step()
    table = perfkit.summarize(trace, "modules")
    assert int(table["flops"].max()) > 0
    assert int(table["self_flops"].sum()) == 2 * counter.get_total_flops()


def test_a_first_layer_computes_no_gradient_of_its_input(tmp_path: Path) -> None:
    model = nn.Linear(8, 4)
    inputs = torch.randn(3, 8)
    with annotate(model):
        trace = record(tmp_path, lambda: model(inputs).sum().backward())
    assert int(perfkit.summarize(trace, "modules")["self_flops"].sum()) == 2 * (2 * 3 * 8 * 4) * 2


def test_layers_have_flops_of_both_passes(tmp_path: Path) -> None:
    """torch's operators have no FLOPs for the backward pass of a convolution, but its FlopCounterMode counts them."""
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(4 * 6 * 6, 5))
    inputs = torch.randn(2, 3, 8, 8)
    with FlopCounterMode(display=False) as counter:
        model(inputs).sum().backward()
    with annotate(model):
        trace = record(tmp_path, lambda: model(inputs).sum().backward(), with_flops=True, record_shapes=True)
    layers = perfkit.summarize(trace, "modules").set_index("module")
    assert int(layers.loc[["0", "2"], "self_flops"].sum()) == 2 * counter.get_total_flops()  # two steps
    assert int(trace.to_pandas()["flops"].sum()) < 2 * counter.get_total_flops()


def test_the_exported_file_has_the_same_layers(net: Net, tmp_path: Path) -> None:
    file = tmp_path / "trace.json"
    with annotate(net), torch.profiler.profile(on_trace_ready=trace_handler(tmp_path / "run")) as profiler:
        training(net)()
    profiler.export_chrome_trace(str(file))
    json.loads(file.read_text())
    live, read = (perfkit.summarize(source, "modules").set_index("module") for source in (tmp_path / "run", file))
    same = ["class", "calls", "backward_calls", "occurrence", "self_cpu_ns"]
    called = live[(live["calls"] > 0) | live["calls"].isna()]
    pd.testing.assert_frame_equal(read[same].sort_index(), called[same].sort_index())
    assert live.loc["Net", "parameters"] == sum(p.numel() for p in net.parameters())
    assert read["parameters"].isna().all()


def test_labels_leave_phases_and_operators_as_they_are(net: Net, tmp_path: Path) -> None:
    with annotate(net):
        labelled = record(tmp_path / "labelled", training(net))
    plain = record(tmp_path / "plain", training(net))
    one, other = (perfkit.summarize(trace, "operators", by="phase") for trace in (labelled, plain))
    keys = ["name", "phase", "calls"]
    assert one[keys].sort_values(keys).to_numpy().tolist() == other[keys].sort_values(keys).to_numpy().tolist()
    assert not perfkit.summarize(labelled, "annotations")["name"].str.contains("perfkit").any()


def test_without_a_profiler_there_are_no_hooks(net: Net) -> None:
    with annotate(net):
        hooks = [hook for module in net.modules() for hook in (*module._forward_hooks, *module._forward_pre_hooks)]
        assert not hooks
        with torch.profiler.profile():
            assert all(module._forward_hooks for module in net.modules())
        assert not any(module._forward_hooks or module._forward_pre_hooks for module in net.modules())
    original = torch.autograd.profiler._run_on_profiler_start
    assert original.__module__ == "torch.autograd.profiler"


def test_torch_without_a_recording_flag_keeps_its_hooks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(torch.autograd.profiler, "_run_on_profiler_start")
    model = nn.Linear(2, 2)
    with annotate(model) as handle:
        model(torch.ones(1, 2))
        assert not handle.log.calls
        monkeypatch.undo()
        with torch.profiler.profile() as profiler:
            model(torch.ones(1, 2))
    assert sum(event.name == "perfkit.module::Linear" for event in profiler.events()) == 1
    assert not model._forward_hooks


def test_a_profiler_that_runs_already_gets_labels_too() -> None:
    model = nn.Linear(2, 2)
    with torch.profiler.profile() as profiler, annotate(model):
        model(torch.ones(1, 2))
    assert [event.name for event in profiler.events() if event.name.startswith("perfkit")] == ["perfkit.module::Linear"]


def test_annotating_twice_is_one_annotation_and_names_differ(tmp_path: Path) -> None:
    first, second, third = nn.Linear(2, 2), nn.Linear(2, 2), nn.Sequential(nn.Linear(2, 2))
    with annotate(first) as one, annotate(second), annotate(third, name="tail"):
        assert annotate(first) is one
        with pytest.raises(UsageError, match="tail"):
            annotate(nn.Linear(1, 1), name="tail")
        trace = record(tmp_path, lambda: third(second(first(torch.ones(1, 2)))))
    table = perfkit.summarize(trace, "modules")
    rows = table[table["module"].notna()]
    assert sorted(zip(rows["depth"], rows["module"], rows["calls"], strict=True)) == [
        (0, "Linear", 2), (0, "Linear2", 2), (0, "tail", 2), (1, "tail.0", 2)
    ]  # fmt: skip


def test_an_annotation_does_not_keep_its_model_alive() -> None:
    from perfkit_torch.layers import FRAMEWORK

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

    with annotate(model):
        trace = record(tmp_path, step)
    table = perfkit.summarize(trace, "modules").set_index("module")
    assert table["calls"].dropna().to_dict() == {"ModuleList": 0, "0": 2, "0.inner": 2, "1": 2}
    assert table.loc["0.inner", "depth"] == 2
    assert table.loc["1", "depth"] == 1


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
    assert len(plain) == len(labelled)


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
    labels = {event.name for event in profiler.events() if event.name.startswith("perfkit")}
    assert labels == {"perfkit.module::Sequential", "perfkit.module:0:Linear"}


def test_describe_counts_what_torch_counts(net: Net) -> None:
    net.train()
    table = describe(net, picture()).to_pandas().set_index("module")
    assert net.training
    assert all(module.training for module in net.modules())
    assert table.loc["Net", "parameters"] == sum(p.numel() for p in net.parameters())
    assert table.loc["Net", "parameter_bytes"] == sum(p.numel() * p.element_size() for p in net.parameters())
    counter = FlopCounterMode(display=False)
    with torch.no_grad(), torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH), counter:
        net(picture())
    assert table.loc["Net", "flops"] == counter.get_total_flops()
    modules = {path or "Net": module for path, module in net.named_modules()}
    for module, row in table.iterrows():
        assert row["parameters"] == sum(p.numel() for p in modules[module].parameters())
        assert row["self_parameters"] == sum(p.numel() for p in modules[module].parameters(recurse=False))
    assert table.loc["blocks.0.short", "inputs"] == "2×3×4×4 float32"
    assert table.loc["shared", "calls"] == 2


def test_formulas_equal_torchs_counter_layer_by_layer() -> None:
    """The FLOPs in a recording follow from formulas, and the FLOPs of describe are counted."""
    from perfkit_torch.layers import FRAMEWORK

    model, inputs = Net(), picture()
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


def test_tied_and_lazy_parameters() -> None:
    tied = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    tied[1].weight = tied[0].weight
    table = describe(tied).to_pandas().set_index("module")
    assert table.loc["Sequential", "parameters"] == sum(p.numel() for p in tied.parameters()) == 15
    assert table.loc["1", "tied"] == "weight = 0.weight"
    assert "1 tied tensor is counted once" in str(describe(tied))
    lazy = nn.Sequential(nn.LazyLinear(4))
    assert describe(lazy).to_pandas()["parameters"].isna().all()
    assert describe(lazy, torch.ones(2, 3)).to_pandas().loc[0, "parameters"] == 3 * 4 + 4
