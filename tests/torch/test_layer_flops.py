"""FLOPs of annotated layers against torch's FlopCounterMode, forward and backward apart, with and without shapes."""

from __future__ import annotations

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
import perfkit.torch
from perfkit_core.plugins.contracts import ViewRequest
from perfkit_core.views import modules
from perfkit_core.views.modules import layer_flops

pytestmark = pytest.mark.live

Layer = tuple[Callable[[], nn.Module], tuple[tuple[int, ...], ...]]
LAYERS: dict[str, Layer] = {
    "Linear": (lambda: nn.Linear(6, 8), ((4, 6),)),
    "grouped Conv2d": (lambda: nn.Conv2d(4, 8, 3, groups=2, padding=1), ((2, 4, 9, 9),)),
    "ConvTranspose2d": (lambda: nn.ConvTranspose2d(4, 6, 3, stride=2), ((2, 4, 7, 7),)),
    "MultiheadAttention": (lambda: nn.MultiheadAttention(16, 4, batch_first=True), ((2, 5, 16),) * 3),
    "cross attention": (lambda: nn.MultiheadAttention(16, 4, batch_first=True), ((2, 5, 16), (2, 7, 16), (2, 7, 16))),
    "attention with other widths": (
        lambda: nn.MultiheadAttention(16, 4, kdim=6, vdim=4, batch_first=True), ((2, 5, 16), (2, 7, 6), (2, 7, 4)),
    ),
    "LSTMCell": (lambda: nn.LSTMCell(6, 10), ((4, 6),)),
    "GRUCell": (lambda: nn.GRUCell(6, 10), ((4, 6),)),
    "RNNCell": (lambda: nn.RNNCell(6, 10), ((4, 6), (4, 10))),
}  # fmt: skip


def recorded(model: nn.Module, run: Callable[[], Any], folder: Path, shapes: bool) -> Any:
    handler = perfkit.torch.trace_handler(folder)
    cpu = [torch.profiler.ProfilerActivity.CPU]
    with perfkit.torch.annotate(model), torch.profiler.profile(activities=cpu, record_shapes=shapes,
                                                               on_trace_ready=handler):  # fmt: skip
        run()
    return perfkit.load(folder)


def of_root(trace: Any) -> int:
    return int(modules.table(trace, ViewRequest())["flops"].iloc[0])


@pytest.mark.parametrize("gradients", [(False, False, False), (True, True, True), (True, False, False)], ids=str)
@pytest.mark.parametrize("name", LAYERS)
def test_formulas_of_layers_equal_torchs_counter(name: str, gradients: tuple[bool, ...], tmp_path: Path) -> None:
    make, shapes = LAYERS[name]
    torch.manual_seed(0)
    model = make()
    inputs = [torch.randn(shape, requires_grad=wanted) for shape, wanted in zip(shapes, gradients, strict=False)]
    tied = name == "MultiheadAttention"

    def run() -> None:
        with sdpa_kernel(SDPBackend.MATH):
            result = model(*(inputs[:1] * 3 if tied else inputs))
            (result[0] if isinstance(result, tuple) else result).sum().backward()

    run()
    with FlopCounterMode(display=False) as counter:
        run()
    expected = int(counter.get_total_flops())
    if name == "grouped Conv2d":  # the counter counts pairs of channels in different groups in the weight's gradient
        forward = 2 * 2 * 8 * 9 * 9 * 2 * 3 * 3
        expected = forward * (2 + gradients[0])
    without = recorded(model, run, tmp_path / "without", shapes=False)
    assert int(layer_flops(without).sum()) == expected
    assert of_root(without) == expected
    assert of_root(recorded(model, run, tmp_path / "with", shapes=True)) == expected


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN], ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("options", [{}, {"num_layers": 2}, {"bidirectional": True}], ids=str)
def test_recurrent_layers_have_backward_flops(kind: type[nn.RNNBase], options: dict[str, Any], tmp_path: Path) -> None:
    model, x = kind(6, 10, **options), torch.randn(5, 4, 6)
    trace = recorded(model, lambda: model(x)[0].sum().backward(), tmp_path, shapes=False)
    (layer,) = (layer for layer in modules.module_tree(trace).stored() if layer)
    elements = {name: weight.numel() for name, weight in model.named_parameters() if "weight" in name}
    first = sum(size for name, size in elements.items() if name.startswith("weight_ih_l0"))
    assert layer.flops == 2 * 20 * sum(elements.values())
    assert layer.backward_flops == 2 * layer.flops - 2 * 20 * first  # the input has no gradient


class Attention(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return functional.scaled_dot_product_attention(x, x, x)


def test_attention_by_a_function_counts_if_shapes_were_recorded_and_is_unknown_otherwise(tmp_path: Path) -> None:
    model, x = nn.Sequential(nn.Linear(8, 8), Attention()), torch.randn(2, 4, 5, 8)
    mixing = 2 * 2 * 2 * 4 * 5 * 5 * 8
    known, unknown = (
        modules.table(recorded(model, lambda: model(x), tmp_path / str(shapes), shapes), ViewRequest()).set_index(
            "class"
        )
        for shapes in (True, False)
    )
    assert known.loc["Attention", "self_flops"] == mixing
    assert unknown["self_flops"].isna()["Attention"]


def test_describe_and_annotate_agree(tmp_path: Path) -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lstm, self.pair, self.cell = nn.LSTM(6, 10, 2), nn.Bilinear(10, 10, 4), nn.GRUCell(4, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            hidden = self.lstm(x)[0][-1]
            return self.cell(self.pair(hidden, hidden))

    model, x = Model(), torch.randn(5, 3, 6)
    described = perfkit.torch.describe(model, x).to_pandas().set_index("module")["self_flops"].dropna()
    trace = recorded(model, lambda: model(x), tmp_path, shapes=False)
    stored = {layer.path: layer.flops for layer in modules.module_tree(trace).stored() if layer}
    for path in ("lstm", "pair", "cell"):
        assert stored[path] == described[path] > 0
