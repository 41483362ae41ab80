"""``annotate`` and ``describe``: the recorded labels of layers, and numbers that the framework gives for the model."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import pytest

import perfkit_core as perfkit
from perfkit_core.errors import UsageError
from perfkit_core.testing.traces import check_trace
from perfkit_core.trace.model.trace import Trace
from tests.support.frameworks import Framework

pytestmark = [
    pytest.mark.filterwarnings("ignore:When training, we now always track"),
    pytest.mark.filterwarnings("ignore:[\\s\\S]*Tensor do not have 'place' interface"),
]
TRUTH = "truth "


class TorchNet:
    """The network of the tests in torch."""

    made_by: ClassVar = {"ConvolutionBackward0": "Conv2d", "NativeBatchNormBackward0": "BatchNorm2d",
                         "NativeLayerNormBackward0": "LayerNorm"}  # fmt: skip
    not_called: ClassVar = {"blocks", "unused", "attention.self_attn.out_proj"}
    """An nn.ModuleList, an unused layer, and a layer that only holds parameters."""
    passed_on: ClassVar = {"attention.dropout", "attention.dropout1", "attention.dropout2"}
    """Layers that return their input."""
    held_for: ClassVar = {"attention.self_attn.out_proj": "attention.self_attn"}
    """Layers that only hold parameters, and the layer that uses them."""
    exports = ("json",)

    def __init__(self, torch: Any) -> None:
        from tests.support.torch_layers import Net, picture

        self.model, self.inputs = Net(), picture()
        self.parameters = dict(self.model.named_parameters())

    def mark(self, name: str, parameter: Any, hook: Callable[[Any], None]) -> None:
        """Call a hook when the gradient of a parameter has been accumulated."""
        parameter.register_post_accumulate_grad_hook(hook)

    def layers(self) -> dict[str, Any]:
        return dict(self.model.named_modules())

    def hooks(self, layer: Any) -> list[bool]:
        return [bool(layer._forward_hooks), bool(layer._forward_pre_hooks)]

    def train(self, **keywords: Any) -> None:
        self.model.zero_grad()
        self.model(self.inputs, **keywords)["logits"].square().sum().backward()

    def export(self, profiler: Any, file: Path) -> None:
        profiler.export_chrome_trace(str(file))

    def operators_ns(self, profiler: Any, names: set[str]) -> int:
        """Return the time of the outermost operators in torch's list of events."""
        outermost = [e for e in profiler.events() if e.name in names and not self._inside(e, names)]
        return sum(round(event.cpu_time_total * 1000) for event in outermost)

    def _inside(self, event: Any, names: set[str]) -> bool:
        above = event.cpu_parent
        return above is not None and (above.name in names or self._inside(above, names))


class PaddleNet:
    """The network of the tests in Paddle."""

    made_by: ClassVar = {"Conv2dGradNodeFinal": "Conv2D", "BatchNormGradNode": "BatchNorm2D",
                         "LayerNormGradNode": "LayerNorm", "RnnGradNode": "LSTM",
                         "DropoutGradNode": "Dropout"}  # fmt: skip
    not_called: ClassVar = {"blocks", "unused", "lstm.0", "lstm.0.cell"}
    passed_on: ClassVar[set[str]] = set()
    held_for: ClassVar = {"lstm.0.cell": "lstm", "lstm": "lstm"}
    """A fused operator runs all cells."""
    exports = ("json", "pb")

    def __init__(self, paddle: Any) -> None:
        from tests.support import paddle_layers

        self.model, self._train, self.paddle = paddle_layers.net(paddle), paddle_layers.train, paddle
        self.parameters = {name: each for name, each in self.model.named_parameters() if not each.stop_gradient}

    def mark(self, name: str, parameter: Any, hook: Callable[[Any], None]) -> None:
        parameter.register_hook(hook)

    def layers(self) -> dict[str, Any]:
        return {"": self.model, **dict(self.model.named_sublayers())}

    def hooks(self, layer: Any) -> list[bool]:
        return [bool(layer._forward_post_hooks), bool(layer._forward_pre_hooks)]

    def train(self, **keywords: Any) -> None:
        self._train(self.paddle, self.model, **keywords)

    def export(self, profiler: Any, file: Path) -> None:
        profiler.export(str(file), file.suffix[1:])

    def operators_ns(self, profiler: Any, names: set[str]) -> int:
        """Return the time of the outermost operators in Paddle's tree."""
        return sum(map(self._outermost, profiler.profiler_result.get_data().values()))

    def _outermost(self, node: Any) -> int:
        if node.type.name in ("Operator", "PythonOp", "Communication"):
            return int(node.end_ns - node.start_ns)
        return sum(map(self._outermost, node.children_node))


@dataclass(frozen=True)
class Recordings:
    """Two steps of a training, recorded with labels of layers and without. ``operators_ns`` and ``exports`` are those
    of the framework for the recording with labels."""

    net: Any
    labelled: Trace
    plain: Trace
    operators_ns: int
    exports: dict[str, Path]


@pytest.fixture(scope="module")
def recordings(native: Framework, tmp_path_factory: pytest.TempPathFactory) -> Recordings:
    """The trace shows when the framework has accumulated the gradient of each parameter, by hooks of the framework."""
    native.seed(0)
    folder = tmp_path_factory.mktemp("net")
    net: Any = {"torch": TorchNet, "paddle": PaddleNet}[native.name](native.module)
    for name, parameter in net.parameters.items():
        net.mark(name, parameter, lambda _, name=name: say(native, f"{TRUTH}{name}"))
    shift = native.ones(4)
    plain = native.record(folder / "plain", lambda: net.train(shift=shift))
    times: list[int] = []
    exports = {kind: folder / f"trace.{kind}" for kind in net.exports}
    names = set(plain.to_pandas().query("kind in ['operator', 'communication']")["name"].astype(str))

    def also(profiler: Any) -> None:
        times.append(net.operators_ns(profiler, names))
        for file in exports.values():
            net.export(profiler, file)

    with native.perfkit.annotate(net.model):
        labelled = native.record(folder / "labelled", lambda: net.train(shift=shift), also=[also])
    return Recordings(net, labelled, plain, times[0], exports)


def say(native: Framework, name: str) -> None:
    with native.label(name):
        pass


def modules(source: Any) -> pd.DataFrame:
    return perfkit.summarize(source, "modules").set_index("module")


def test_every_call_and_backward_pass_is_labelled(recordings: Recordings) -> None:
    check_trace(recordings.labelled)
    net, table = recordings.net, modules(recordings.labelled)
    calls = {module: 2 for module in table.index if isinstance(module, str)} | {"shared": 4}
    never = net.not_called & set(table.index)
    assert {"blocks", "unused"} <= never
    assert table["calls"].dropna().to_dict() == calls | dict.fromkeys(never, 0)
    assert table["backward_calls"].dropna().to_dict() == calls | dict.fromkeys(never | net.passed_on, 0)
    assert table.loc["blocks.0.body.2", "class"] == "ReLU"
    assert table.loc[["Net", "blocks.0.body.2"], "depth"].tolist() == [0, 4]


def test_backward_nodes_belong_to_the_layer_that_made_them(recordings: Recordings) -> None:
    """Each of these graph nodes is made by one class of layers. Names in Paddle 2.6 have no prefix. Paddle's attention
    also has a dropout."""
    classes = {path or "Net": type(layer).__name__ for path, layer in recordings.net.layers().items()}
    frame = recordings.labelled.to_pandas()
    for name, layer in recordings.net.made_by.items():
        nodes = frame[frame["name"].isin([name, f"Global_{name}"]) & (frame["module"] != "attention.self_attn")]
        found = set(nodes["module"])
        assert {classes[module] for module in found} == {layer}, name
        assert layer == "Dropout" or found == {path for path, each in classes.items() if each == layer}


def test_gradients_accumulate_in_the_layer_of_the_parameter(recordings: Recordings) -> None:
    """The unused layer has no gradient."""
    frame, net = recordings.labelled.to_pandas(), recordings.net
    marks = frame[frame["name"].str.startswith(TRUTH)]
    found = {str(name)[len(TRUTH) :]: set(rows["module"]) for name, rows in marks.groupby("name", observed=True)}
    assert set(net.parameters) - set(found) == {"unused.weight", "unused.bias"}
    owners = {name: name.rpartition(".")[0] or "Net" for name in found}
    assert found == {name: {net.held_for.get(owner, owner)} for name, owner in owners.items()}


def test_the_rows_sum_to_the_frameworks_own_operator_times(recordings: Recordings) -> None:
    table = perfkit.summarize(recordings.labelled, "modules")
    outermost = table.loc[table["depth"] == 0, "total_cpu_ns"]
    assert int(table["self_cpu_ns"].sum()) == int(outermost.sum()) == recordings.operators_ns
    assert int(outermost.iloc[0]) < recordings.operators_ns


def test_the_exported_file_has_the_same_layers(native: Framework, recordings: Recordings) -> None:
    """Paddle's JSON has rounded times. A file has no numbers of parameters. Those of the run are those of describe."""
    live = modules(recordings.labelled)
    called = live[(live["calls"] > 0) | live["calls"].isna()]
    for kind, file in recordings.exports.items():
        read = modules(file)
        same = ["class", "calls", "backward_calls", "occurrence"]
        same += ["self_cpu_ns"] if kind == recordings.net.exports[-1] else []
        pd.testing.assert_frame_equal(read[same].sort_index(), called[same].sort_index())
        assert read["parameters"].isna().all()
    assert live.loc["Net", "parameters"] == sum(int(np.prod(each.shape)) for each in recordings.net.model.parameters())
    described = native.perfkit.describe(recordings.net.model).to_pandas().set_index("module")
    assert live["parameters"].loc[live.index.notna()].to_dict() == described["parameters"].to_dict()


def test_labels_leave_phases_and_operators_as_they_are(recordings: Recordings) -> None:
    def rows(trace: Trace, view: str, columns: list[str], **options: Any) -> Any:
        return perfkit.summarize(trace, view, **options)[columns].sort_values(columns).to_numpy().tolist()

    def both(*arguments: Any, **options: Any) -> list[Any]:
        return [rows(trace, *arguments, **options) for trace in (recordings.labelled, recordings.plain)]

    labelled, plain = both("operators", ["name", "phase", "calls"], by="phase")
    assert labelled == plain
    labelled, plain = both("model", ["phase", "calls"])
    assert [name for name, _ in labelled] == [name for name, _ in plain]
    # a pause, as on a loaded machine, divides a forward pass
    assert [row for row in labelled if row[0] != "forward"] == [row for row in plain if row[0] != "forward"]
    assert not perfkit.summarize(recordings.labelled, "annotations")["name"].str.contains("perfkit").any()


def test_without_a_profiler_there_are_no_hooks(native: Framework) -> None:
    net: Any = {"torch": TorchNet, "paddle": PaddleNet}[native.name](native.module)

    def hooked() -> Iterable[bool]:
        return (hook for layer in net.layers().values() for hook in net.hooks(layer))

    with native.perfkit.annotate(net.model) as handle:
        assert native.perfkit.annotate(net.model) is handle
        assert not any(hooked())
        profiler = native.profiler(on_trace_ready=lambda _: None)
        profiler.start()
        assert all(hooked())
        profiler.stop()
        assert not any(hooked())
        del profiler


def test_names_of_several_models_differ(native: Framework, tmp_path: Path) -> None:
    nn, annotate = native.module.nn, native.perfkit.annotate
    first, second, third = nn.Linear(2, 2), nn.Linear(2, 2), nn.Sequential(nn.Linear(2, 2))
    with annotate(first), annotate(second), annotate(third, name="tail"):
        with pytest.raises(UsageError, match="tail"):
            annotate(nn.Linear(1, 1), name="tail")
        trace = native.record(tmp_path, lambda: third(second(first(native.ones(1, 2)))))
    table = perfkit.summarize(trace, "modules")
    rows = table[table["module"].notna()]
    assert sorted(zip(rows["depth"], rows["module"], rows["calls"], strict=True)) == [
        (0, "Linear", 2), (0, "Linear2", 2), (0, "tail", 2), (1, "tail.0", 2)
    ]  # fmt: skip


def test_tied_parameters_are_counted_once(native: Framework) -> None:
    nn = native.module.nn
    tied = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    tied[1].weight = tied[0].weight
    found = native.perfkit.describe(tied)
    table = found.to_pandas().set_index("module")
    assert table.loc["Sequential", "parameters"] == 15 == sum(int(np.prod(each.shape)) for each in tied.parameters())
    assert table.loc["1", "tied"] == "weight = 0.weight"
    assert "1 tied tensor is counted once" in str(found)
