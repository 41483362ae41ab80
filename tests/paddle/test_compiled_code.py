"""The operators in names of CINN kernels. The names occur in Paddle's repository and in its pull requests."""

from __future__ import annotations

import pytest

from perfkit_paddle.operator_names import fused_operators


@pytest.mark.parametrize(
    ("kernel", "operators"),
    [
        ("fn_broadcast_to_24_elementwise_add_25_30_kernel", ("broadcast_to", "elementwise_add")),
        ("fn_broadcast_to_1_broadcast_to_0_less_equal_2_1_kernel", ("broadcast_to", "less_equal")),
        (
            "fn_generate_shape_broadcast_to_broadcast_to_elementwise_add_yield_store___COND__FPA_trueAND_FPA__BPA___kernel",
            ("broadcast_to", "elementwise_add"),
        ),
        ("fn_reshape_gather_nd_reshape_bc_mul_slice_slice_scale_concat_bc_mul_add_yield_",
         ("reshape", "gather_nd", "broadcast_to", "multiply", "slice", "scale", "concat", "add")),
        ("fn_cache_lookup", ()),
        ("void phi::funcs::VectorizedElementwiseKernel<float>", ()),
    ],
)  # fmt: skip
def test_operators_of_a_name(kernel: str, operators: tuple[str, ...]) -> None:
    assert fused_operators(kernel) == operators
