"""PyTorch's operators in the vocabulary: decided by hand, and compared with PyTorch's tags."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

from perfkit_core.base.operators.names import family, is_canonical, native_names
from perfkit_torch.operator_names import operator_name

UNMAPPED_AT_MOST = 0.03
"""Maximum number of unmapped operators on tensors. If a new version of PyTorch adds more, they must be reviewed."""


@pytest.mark.parametrize(
    ("native", "canonical"),
    [
        ("aten::addmm", "matmul"),
        ("aten::addmm.out", "matmul"),
        ("aten::add_", "add"),
        ("aten::_softmax_backward_data", "softmax_grad"),
        ("aten::native_layer_norm_backward", "layer_norm_grad"),
        ("aten::convolution_backward", "conv_grad"),
        ("aten::detach", "alias"),
        ("detach", "alias"),
        ("aten::lift_fresh", "alias"),
        ("aten::resolve_conj", "alias"),
        ("aten::masked_fill_", "where"),
        ("aten::_amp_update_scale_", "update_loss_scale"),
        ("aten::_foreach_add_", "optimizer_update"),
        ("aten::_foreach_copy_", "copy"),
        ("aten::_fused_adamw_", "optimizer_update"),
        ("aten::_fused_rms_norm", "rms_norm"),
        ("aten::_fused_rms_norm_backward", "rms_norm_grad"),
        ("inductor::_mm_plus_mm", "matmul"),
        ("mkldnn::_convolution_transpose_pointwise", "conv_transpose"),
        ("symm_mem::_async_input_mm", "matmul"),
        ("aten::_fused_sdp_choice", "metadata"),
        ("aten::special_bessel_j0", "special_function"),
        ("aten::linalg_qr", "qr"),
        ("aten::fft_rfft", "fft"),
        ("aten::_reshape_alias_copy", "reshape"),
        ("aten::__lshift__", "shift"),
        ("prims::convert_element_type", "cast"),
        ("mkldnn::_linear_pointwise", "matmul"),
        ("onednn::qconv2d_pointwise", "conv"),
        ("quantized::linear_dynamic", "matmul"),
        ("quantized::add_relu", "add"),
        ("quantized::batch_norm2d_relu", "batch_norm"),
        ("aten::_nested_tensor_softmax_with_shape", "softmax"),
        ("aten::_mkldnn_transpose", "transpose"),
        ("AddmmBackward0", "matmul_grad"),
        ("autograd::engine::evaluate_function: AddmmBackward0", "matmul_grad"),
        ("ReshapeAliasBackward0", "reshape_grad"),
        ("MaxPool2DWithIndicesBackward0", "pool_grad"),
        ("torch::autograd::AccumulateGrad", "accumulate_grad"),
        ("c10d::allreduce_", "all_reduce"),
        ("c10d::_allgather_base_", "all_gather"),
        ("_c10d_functional::reduce_scatter_tensor", "reduce_scatter"),
        ("nccl:all_reduce", "all_reduce"),
        ("gloo:broadcast", "broadcast"),
        ("hccl:all_gather", "all_gather"),
        ("xccl:reduce_scatter", "reduce_scatter"),
        ("record_param_comms", "collective_call"),
        ("vllm::all_reduce", "collective_call"),
        ("symm_mem::multimem_all_reduce_", "all_reduce"),
        ("fbgemm::FloatToFP8RowwiseQuantized", "quantize"),
        ("fbgemm::HFP8QuantizedToFloat", "dequantize"),
        ("torch::autograd::CppNode<SplitLookupFunction_adagrad_Op>", "embedding_grad"),
        ("All2All_Pooled_ReqBackward", "collective_call_grad"),
        ("vllm::unified_attention_with_output", "attention"),
        ("_C::fused_add_rms_norm", "rms_norm"),
        ("torchvision::nms", "nms"),
        ("Torch-Compiled Region: 0/0", "compiled_region"),
        ("torch::jit::(anonymous namespace)::DifferentiableGraphBackward", "compiled_region_grad"),
        ("triton_red_fused_add_mean_mul_pow_rsqrt_0", "fused_reduction"),
        ("triton_poi_fused_add_cos_sin_0", "fused_elementwise"),
        ("MyFunctionBackward", None),
        ("my_library::my_operator", None),
        ("aten::no_such_operator", None),
        ("Optimizer.step#Adam.step", None),
        ("", None),
    ],
)
def test_names_decided_by_hand(native: str, canonical: str | None) -> None:
    """Variants of an operator's name (in place, overload, backend) compute the same."""
    assert operator_name(native) == canonical


def test_tables_map_into_the_vocabulary() -> None:
    """The tables contain only names of the vocabulary, which all frameworks share."""
    table = native_names("perfkit_torch")
    by_pattern = [name for patterns in table.patterns.values() for name, _ in patterns]
    assert [name for name in (*table.names.values(), *by_pattern) if not is_canonical(name)] == []


LIST = """
import torch
schemas = torch._C._jit_get_all_schemas()
print(*{s.name for s in schemas if any("Tensor" in str(part.type) for part in (*s.arguments, *s.returns))})
"""


def _on_tensors() -> list[str]:
    """Return the operators of the installed PyTorch that take or return a tensor. They are listed in a new process, in
    which no other library has registered operators."""
    done = subprocess.run([sys.executable, "-c", LIST], capture_output=True, text=True, check=True)
    names = done.stdout.split()
    return sorted(name for name in names if not name.startswith(("prim::", "_test::", "aten::_test_")))


def test_operators_of_the_installed_version_are_known(capsys: pytest.CaptureFixture[str]) -> None:
    """The report lists the operators that no rule names."""
    names = _on_tensors()
    unmapped = [name for name in names if operator_name(name) is None]
    with capsys.disabled():
        print(f"\ntorch {torch.__version__}: {len(unmapped)} of {len(names)} operators unmapped: {' '.join(unmapped)}")
    assert len(names) > 1000
    assert len(unmapped) <= UNMAPPED_AT_MOST * len(names)


def _tagged(tag: torch.Tag) -> set[str]:
    """Return the names of aten's operators with an overload that has this tag. Test operators are left out."""
    found = set()
    for name in torch._C._dispatch_get_all_op_names():
        operator, _, overload = name.removeprefix("aten::").partition(".")
        if name.startswith("aten::") and not operator.startswith("_test"):
            packet = getattr(torch.ops.aten, operator)
            overload = overload or "default"
            if overload in packet.overloads() and tag in getattr(packet, overload).tags:
                found.add(f"aten::{operator}")
    return found


@pytest.mark.parametrize(
    ("tag", "families"),
    [
        ("pointwise", {"elementwise", "activation", "dropout", "copy"}),
        ("reduction", {"reduction"}),
        ("nondeterministic_seeded", {"random", "dropout", "attention", "rnn", "activation", "softmax", "metadata"}),
    ],
)
def test_families_agree_with_the_tags_of_pytorch(tag: str, families: set[str]) -> None:
    """PyTorch tags operators that work on each element, reduce, or draw random numbers. ``max`` and ``min`` have two
    tags: of two tensors they work on each element, of one tensor they reduce."""
    tagged = _tagged(getattr(torch.Tag, tag))
    found = {name: family(operator_name(name)) for name in tagged - {"aten::max", "aten::min"}}
    assert len(found) > 15
    assert {name: found[name] for name in found if found[name] not in families} == {}


FUNCTIONS = {
    "relu": lambda x: torch.relu(x),
    "gelu": lambda x: torch.nn.functional.gelu(x),
    "silu": lambda x: torch.nn.functional.silu(x),
    "softmax": lambda x: x.softmax(-1),
    "log_softmax": lambda x: x.log_softmax(-1),
    "layer_norm": lambda x: torch.nn.functional.layer_norm(x, (4,)),
    "add": lambda x: x + 1,
    "multiply": lambda x: x * 2,
    "divide": lambda x: 2 / (x + 9) / 3,
    "sqrt": lambda x: x.square().sqrt(),
    "sum": lambda x: x.sum(),
    "mean": lambda x: x.mean(0),
    "concat": lambda x: torch.cat([x, x]),
    "stack": lambda x: torch.stack([x, x]),
    "transpose": lambda x: x.t(),
    "slice": lambda x: x[1:],
    "gather": lambda x: x.gather(0, torch.zeros(1, 4, dtype=torch.long)),
    "index": lambda x: x[torch.tensor([0, 2])],
    "cumsum": lambda x: x.cumsum(0),
    "cast": lambda x: x.double(),
    "expand": lambda x: x[:1].expand(3, 4),
    "matmul": lambda x: x.mm(x.t()),
    "where": lambda x: torch.where(x > 0, x, x),
    "clip": lambda x: x.clamp(0, 1),
    "var": lambda x: x.var(0),
    "norm": lambda x: torch.linalg.vector_norm(x),
    "pad": lambda x: torch.nn.functional.pad(x, (1, 1)),
    "split": lambda x: x.split(2)[0],
    "sort": lambda x: x.sort().values,
    "topk": lambda x: x.topk(2).values,
    "inverse": lambda x: torch.linalg.inv(x[:, :3] + 9 * torch.eye(3)),
    "prod": lambda x: x.prod(),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_nodes_of_autograd_are_gradients_of_their_operators(name: str) -> None:
    """The name of the node that PyTorch creates is compared with the requested name."""
    result = FUNCTIONS[name](torch.rand(3, 4, requires_grad=True))
    assert operator_name(result.grad_fn.name()) == f"{name}_grad"
