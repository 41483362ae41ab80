"""FLOPs and bytes of recorded operators against torch's FlopCounterMode, for 60 models and layers.

FlopCounterMode counts at dispatch, from real tensors. perfkit counts from what the profiler recorded. FlopCounterMode
has no formula for attention on a CPU, so it gets torch's own formula of the other attention operators. Where it is
known to be wrong or has no formula, formulas by hand replace it.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as functional
from torch import nn
from torch.utils._pytree import tree_leaves
from torch.utils.checkpoint import checkpoint
from torch.utils.flop_counter import FlopCounterMode, sdpa_backward_flop_count, sdpa_flop_count

import perfkit.torch
from perfkit_core.plugins.contracts import ViewRequest
from perfkit_core.plugins.flops.arguments import Work
from perfkit_core.plugins.flops.registry import read_formulas
from perfkit_core.trace.model.trace import Trace
from perfkit_core.views.devices import model_flops
from perfkit_core.views.operators.operator_work import operator_work
from tests.support.counted_models import COUNTED, Case

pytestmark = pytest.mark.live


def recorded(runs: Mapping[str, Callable[[], Any]], folder: Path) -> tuple[Trace, dict[str, list[tuple[str, Work]]]]:
    """Record each run as a step. Return the trace, and name and work of each operator of a run that does work."""
    handler = perfkit.torch.trace_handler(folder)
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU], record_shapes=True, on_trace_ready=handler,
        schedule=lambda step: torch.profiler.ProfilerAction.RECORD,
    ) as profiler:  # fmt: skip
        for run in runs.values():
            run()
            profiler.step()
    trace = perfkit.load(folder)
    work, names, steps = operator_work(trace), trace.codes("name"), trace.ints("step")
    found: dict[str, list[tuple[str, Work]]] = {name: [] for name in runs}
    for row, number in zip(work.row.tolist(), work.distinct.tolist(), strict=True):
        found[list(runs)[steps[row]]].append((names.values[names.codes[row]], work.works[number]))
    return trace, found


def reference(run: Callable[[], Any]) -> int:
    attention = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    formulas = {
        attention: lambda query, key, value, *_, **__: sdpa_flop_count(query, key, value),
        torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward:
            lambda gradient, query, key, value, *_, **__: sdpa_backward_flop_count(gradient, query, key, value),
    }  # fmt: skip
    with FlopCounterMode(display=False, custom_mapping=formulas) as counter:
        run()
    return int(counter.get_total_flops())


def training(case: Case, trains_input: bool) -> Callable[[], None]:
    torch.manual_seed(0)
    model, x = case[0](), torch.randn(case[1], requires_grad=trains_input)
    return lambda: model(x).sum().backward()


def test_the_list_has_sixty_models_and_layers() -> None:
    assert len(COUNTED) >= 60


Product = tuple[Callable[[], Any], int | None]
"""A run, and the FLOPs of its matrix products. They are None where torch's counter is right."""


def by_hand() -> Iterator[tuple[str, Product]]:
    convolution = nn.Conv2d(8, 12, 3, groups=4, bias=False)
    image = torch.randn(2, 8, 10, 10, requires_grad=True)
    # samples, positions, channels, channels per group, kernel: the counter counts pairs in different groups
    yield "grouped convolution", (lambda: convolution(image).sum().backward(), 3 * 2 * 2 * 8 * 8 * 12 * 2 * 3 * 3)
    query = torch.randn(2, 4, 10, 8, requires_grad=True)
    for keys in (6, 10, 14):
        key, pairs = torch.randn(2, 4, keys, 8, requires_grad=True), int(torch.ones(10, keys).tril().sum()) * 2 * 4

        def causal(key: torch.Tensor = key) -> None:
            functional.scaled_dot_product_attention(query, key, key, is_causal=True).sum().backward()

        # two products in the forward pass, five in the backward pass, each with 2 · 8 FLOPs for a pair
        yield f"causal attention with {keys} keys", (causal, 7 * 2 * 8 * pairs)
    x = torch.randn(5, 4, 6)
    for options in ({}, {"num_layers": 2}, {"bidirectional": True}, {"num_layers": 3, "bidirectional": True}):
        lstm = nn.LSTM(6, 10, **options)
        elements = sum(weight.numel() for name, weight in lstm.named_parameters() if "weight" in name)
        yield f"LSTM {options}", (lambda lstm=lstm: lstm(x)[0].sum().backward(), 3 * 2 * 20 * elements)
    # the groups split the rows, the columns or the inner dimension
    for a, b in (((32, 16), (4, 16, 8)), ((4, 8, 16), (16, 32)), ((8, 32), (32, 16))):
        run = functools.partial(_grouped, _half(*a), _half(*b), _ENDS)
        yield f"groups {a} × {b}", (run, 2 * 4 * 8 * 16 * 8)


ROLES = {
    "a": ["batch1", "mat", "mat1", "self"],
    "b": ["batch2", "mat2", "other", "tensor", "vec"],
    "input": ["X", "input", "self"],
    "weight": ["ORI_W", "W", "mat2", "weight"],
    "bias": ["B", "attn_bias", "attn_mask", "bias", "self"],
    "gradient": ["grad_out", "grad_out_", "grad_output"],
    "causal": ["custom_mask_type", "is_causal"],
    "wanted": ["output_mask"],
    "query_starts": ["cu_seqlens_q", "cum_seq_q"],
    "key_starts": ["cu_seqlens_k", "cum_seq_k"],
    "query_length": ["max_q", "max_seqlen_q"],
    "key_length": ["max_k", "max_seqlen_k"],
    "trained": ["training"],
    "dims": ["dim", "dtype", "other"],
    "window": ["kernel_size"],
    "ceil": ["ceil_mode"],
    "size": ["output_size"],
    "indices": ["index", "indices"],
    "table": ["self", "weight"],
    "rows": ["num_weights"],
    "starts": ["offsets"],
    "ends": ["offs"],
    "result": ["self"],
    "source": ["other", "src"],
    "target": ["target", "weight"],
    "scales": ["scale_a", "scale_b"],
    "with_end": ["include_last_offset"],
    "output": ["output"],
    "parameters": ["self"],
    "gradients": ["grads"],
}
"""Role of a formula → names that the argument has in torch's schemas. Other roles have the name of the argument."""
PLACED = {"weights", "inputs", "tensors", "results", "others", "states"}
"""Roles of several arguments with different names."""


@pytest.mark.parametrize("operator", read_formulas("perfkit_torch"))
def test_roles_are_those_of_torchs_schemas(operator: str) -> None:
    formula = read_formulas("perfkit_torch")[operator]
    names = {f"aten::{operator}", f"aten::{operator}_", operator}
    schemas = [schema for schema in torch._C._jit_get_all_schemas() if schema.name in names]
    if not schemas:
        pytest.skip(f"this torch has no {operator}")

    def fits(schema: Any) -> bool:
        arguments = [argument.name for argument in schema.arguments]
        pairs = list(zip(formula.roles, arguments, strict=False))
        named = [name in ROLES.get(role, [role]) for role, name in pairs if role not in PLACED | {"_"}]
        return len(pairs) == len(formula.roles) and all(named)

    assert any(map(fits, schemas))


def _float(*shape: int) -> torch.Tensor:
    return torch.randn(*shape)


def _half(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.bfloat16)


def _grouped(a: torch.Tensor, b: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
    return torch._grouped_mm(a, b, offs=ends)


_ENDS = torch.tensor([8, 16, 24, 32], dtype=torch.int32)
BYTES: dict[str, tuple[Callable[..., Any], tuple[torch.Tensor, ...]]] = {
    "aten::add": (torch.add, (_float(32, 1), _float(1, 48))),
    "aten::mul": (torch.mul, (_float(32, 48), torch.randint(9, (32, 48)))),
    "aten::eq": (torch.eq, (_float(32, 48), _float(32, 48))),
    "aten::where": (torch.where, (torch.ones(32, 48, dtype=torch.bool), _float(32, 48), _float(32, 48))),
    "aten::lerp": (torch.lerp, (_float(32, 48), _float(32, 48), _float(32, 48))),
    "aten::max": (torch.max, (_float(32, 48), _float(32, 48))),
    "aten::min": (torch.min, (_float(32, 48), _float(48))),
    "aten::sum": (lambda x: x.sum(dim=1), (_float(32, 48),)),
    "aten::mean": (lambda x: x.mean(dim=(0, 2)), (_float(4, 5, 6),)),
    "aten::_softmax": (lambda x: x.softmax(1), (_float(32, 48),)),
    "aten::cumsum": (lambda x: x.cumsum(0), (_float(32, 48),)),
    "aten::mm": (torch.mm, (_float(32, 48), _float(48, 8))),
    "aten::addmm": (torch.addmm, (_float(8), _float(32, 48), _float(48, 8))),
    "aten::bmm": (torch.bmm, (_half(3, 32, 48), _half(3, 48, 8))),
    "aten::_grouped_mm": (_grouped, (_half(32, 16), _half(4, 16, 8), _ENDS)),
    "aten::_grouped_mm, columns": (_grouped, (_half(4, 8, 16), _half(16, 32), _ENDS)),
    "aten::_grouped_mm, inner": (_grouped, (_half(8, 32), _half(32, 16), _ENDS)),
    "aten::convolution": (
        lambda x, w: functional.conv_transpose2d(x, w, stride=2, padding=1, output_padding=1, groups=2),
        (_float(2, 4, 7, 7), _float(4, 3, 3, 3)),
    ),
    "aten::addbmm": (torch.addbmm, (_float(4, 6), _float(3, 4, 5), _float(3, 5, 6))),
    "aten::baddbmm": (torch.baddbmm, (_float(3, 4, 6), _float(3, 4, 5), _float(3, 5, 6))),
    "aten::addmv": (torch.addmv, (_float(4), _float(4, 5), _float(5))),
    "aten::convolution_backward": (
        lambda gradient, x, weight: torch.ops.aten.convolution_backward(
            gradient, x, weight, [5], [1, 1], [0, 0], [1, 1], False, [0, 0], 1, [True, True, True]
        ),
        (_float(2, 5, 6, 6), _float(2, 4, 8, 8), _float(5, 4, 3, 3)),
    ),
    "aten::mkldnn_rnn_layer": (
        lambda x, hx, cx, *weights: torch.lstm(x, (hx, cx), weights, True, 1, 0.0, False, False, False),
        (_float(6, 3, 5), _float(1, 3, 7), _float(1, 3, 7), _float(28, 5), _float(28, 7), _float(28), _float(28)),
    ),
    "aten::glu": (functional.glu, (_float(4, 10),)),
    "aten::glu, first dimension": (lambda x: functional.glu(x, 0), (_float(4, 10),)),
    "aten::glu_backward": (lambda g, x: torch.ops.aten.glu_backward(g, x, -1), (_float(4, 5), _float(4, 10))),
    "aten::argmax": (lambda x: x.argmax(1), (_float(4, 6),)),
    "aten::argmin": (torch.argmin, (_half(4, 6),)),
    "aten::any": (lambda x: x.any(1), (_float(4, 6),)),
    "aten::all": (torch.all, (torch.ones(4, 6, dtype=torch.int64),)),
    "aten::max, with indices": (lambda x: x.max(1), (_float(4, 6),)),
    "aten::min, of all": (torch.min, (_float(4, 6),)),
    "aten::sum, of booleans": (lambda x: x.sum(0), (torch.ones(4, 6, dtype=torch.bool),)),
    "aten::prod": (lambda x: x.prod(1), (torch.ones(4, 6, dtype=torch.int32),)),
    "aten::var_mean": (lambda x: torch.var_mean(x, 1), (_float(4, 6),)),
    "aten::cumsum, of integers": (lambda x: x.cumsum(0), (torch.ones(4, 6, dtype=torch.int32),)),
    "aten::max_pool2d_with_indices": (
        lambda x: functional.max_pool2d(x, 2, return_indices=True), (_float(1, 2, 6, 6),)
    ),
    "aten::adaptive_max_pool2d": (
        lambda x: functional.adaptive_max_pool2d(x, 3, return_indices=True), (_float(1, 2, 6, 6),)
    ),
    "aten::native_dropout": (lambda x: torch.native_dropout(x, 0.5, True), (_float(4, 6),)),
    "aten::mse_loss": (functional.mse_loss, (_float(4, 6), _float(4, 6))),
    "aten::mse_loss, none": (
        lambda x, y: functional.mse_loss(x, y, reduction="none"), (_float(4, 6), _float(4, 6))
    ),
    "aten::binary_cross_entropy": (
        lambda x, y, w: functional.binary_cross_entropy(x, y, w), (torch.rand(4, 6), torch.rand(4, 6), torch.rand(4, 6))
    ),
    "aten::_embedding_bag_forward_only": (
        lambda i, t, o: torch.embedding_bag(t, i, o, include_last_offset=True)[0],
        (torch.tensor([0, 1, 2, 3]), _float(4, 6), torch.tensor([0, 2, 4])),
    ),
    "aten::avg_pool2d": (lambda x: functional.avg_pool2d(x, 2, 3, 1, ceil_mode=True), (_float(1, 2, 5, 6),)),
}  # fmt: skip
"""Operator → a call, and its inputs."""


@torch.no_grad()
def test_bytes_are_those_of_inputs_and_results(tmp_path: Path) -> None:
    results: dict[str, list[torch.Tensor]] = {}

    def run(name: str) -> None:
        call, inputs = BYTES[name]
        results[name] = [*inputs, *tree_leaves(call(*inputs))]

    _, work = recorded({name: functools.partial(run, name) for name in BYTES}, tmp_path)
    for name, tensors in results.items():
        (found,) = (each.bytes for operator, each in work[name] if operator == name.split(",")[0])
        assert found == sum(tensor.numel() * tensor.element_size() for tensor in tensors), name


@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpointing_counts_as_recomputation(reentrant: bool, tmp_path: Path) -> None:
    """Without ``reentrant``, torch stops the repeated forward pass at the last layer, whose input it needs."""
    model, x = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 8)), torch.randn(4, 8, requires_grad=True)

    def run() -> None:
        checkpoint(model, x, use_reentrant=reentrant).sum().backward()

    forward, first = 2 * 4 * (8 * 16 + 16 * 8), 2 * 4 * 8 * 16
    trace, _ = recorded({"checkpoint": run}, tmp_path)
    (row,) = model_flops.table(trace, ViewRequest()).to_dict("records")
    assert row["model_flops"] == 3 * forward
    assert row["hardware_flops"] == reference(run) == 3 * forward + (forward if reentrant else first)


def _mapped_gradient() -> None:
    weight = torch.randn(4, 6)

    def loss(x: torch.Tensor) -> torch.Tensor:
        return (x @ weight).square().sum()

    torch.vmap(torch.func.grad(loss))(torch.randn(3, 5, 4))


def _double_backward() -> None:
    x, weight = torch.randn(4, 5, requires_grad=True), torch.randn(5, 6, requires_grad=True)
    (gradient,) = torch.autograd.grad((x @ weight).square().sum(), x, create_graph=True)
    gradient.square().sum().backward()


PROGRAMS: dict[str, Callable[[], Any]] = {
    "vmap of a product": lambda: torch.vmap(torch.mm)(torch.randn(3, 4, 5), torch.randn(3, 5, 2)),
    "vmap over one factor": lambda: torch.vmap(torch.mm, (0, None))(torch.randn(3, 4, 5), torch.randn(5, 2)),
    "nested vmap": lambda: torch.vmap(torch.vmap(torch.mv))(torch.randn(2, 3, 4, 5), torch.randn(2, 3, 5)),
    "vmap of a linear layer": lambda: torch.vmap(functional.linear)(
        torch.randn(3, 7, 4), torch.randn(3, 6, 4), torch.randn(3, 6)
    ),
    "vmap of a convolution": lambda: torch.vmap(functional.conv2d)(
        torch.randn(3, 2, 4, 8, 8), torch.randn(3, 5, 4, 3, 3)
    ),
    "gradient inside vmap": _mapped_gradient,
    "second derivative": _double_backward,
    "einsum": lambda: torch.einsum("bij,bjk,kl->bil", torch.randn(2, 3, 4), torch.randn(2, 4, 5), torch.randn(5, 6)),
    "attention with a mask": lambda: functional.scaled_dot_product_attention(
        torch.randn(2, 4, 8, 16), torch.randn(2, 4, 8, 16), torch.randn(2, 4, 8, 16), torch.randn(8, 8)
    ),
}


def test_flops_of_matrix_products(tmp_path: Path) -> None:
    """Those of models equal torch's counter, forward and backward, with and without the gradient of the input."""
    runs: dict[str, Product] = dict(by_hand()) | {name: (run, None) for name, run in PROGRAMS.items()}
    for name, case in COUNTED.items():
        runs |= {f"{name}, gradient of the input {wanted}": (training(case, wanted), None) for wanted in (False, True)}
    for run, _ in runs.values():
        run()  # so that lazily created gradients do not differ
    _, work = recorded({name: run for name, (run, _) in runs.items()}, tmp_path)
    for name, (run, by_hand_flops) in runs.items():
        expected = reference(run) if by_hand_flops is None else by_hand_flops
        assert sum(each.flops for _, each in work[name] if each.matrix) == expected > 0, name


def test_elementwise_work_inside_vmap_and_backward_nodes(tmp_path: Path) -> None:
    x, y = torch.randn(1000, requires_grad=True), torch.randn(1000, requires_grad=True)

    def run() -> None:
        torch.vmap(torch.square)(torch.randn(8, 10))
        (x * y).backward(torch.ones(1000))

    flops: Counter[str] = Counter()
    for name, work in recorded({"run": run}, tmp_path)[1]["run"]:
        flops[name] += work.flops
    assert flops["aten::mul"] == 3 * 1000  # one in the forward pass, two in the node MulBackward0
    assert flops["aten::square"] + flops["aten::pow"] == 80
    assert not any("Backward" in name for name in flops)
