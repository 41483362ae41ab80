"""Shapes of programs with open sizes against Paddle's own shapes of the same programs with fixed sizes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("paddle", reason="needs paddle: pip install 'perfkit[paddle]'")

import paddle
from paddle import nn
from paddle.nn import functional

from perfkit_paddle.program_shapes import Program, Shapes
from perfkit_paddle.static_programs import read

pytestmark = [
    pytest.mark.live,
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.skipif(paddle.__version__ < "3", reason="Paddle 2 builds programs of the old IR"),
]

Builder = Callable[[Any], Any]
B, T = 4, 6


def attention(x: Any) -> Any:
    """Attention of one head, whose scores have the shape (samples, positions, positions)."""
    q, k, v = (nn.Linear(8, 8)(x) for _ in "qkv")
    return paddle.matmul(functional.softmax(paddle.matmul(q, k, transpose_y=True)), v)


def heads(x: Any) -> Any:
    length = paddle.shape(x)[1]
    q, k = (nn.Linear(8, 8)(x).reshape([B, length, 2, 4]).transpose([0, 2, 1, 3]) for _ in "qk")
    return paddle.matmul(q, k, transpose_y=True)


# Each builder gets a tensor of the shape (B, T, 8).
KNOWN: dict[str, Builder] = {
    "linear": lambda x: nn.Linear(8, 5)(functional.relu(x)),
    "attention": attention,
    "normalizations": lambda x: functional.softmax(functional.dropout(functional.gelu(x) * 2 + x)),
    "layer norm": lambda x: nn.Linear(8, 5)(nn.LayerNorm(8)(x).reshape([-1, 8])),
    "merged dimensions": lambda x: nn.Linear(8, 5)(x.reshape([-1, 8])),
    "flattened": lambda x: paddle.flatten(x, 0, 1).unsqueeze(1).squeeze(1),
    "transposed": lambda x: paddle.matmul(x.transpose([0, 2, 1]), x),
    "reductions": lambda x: paddle.max(paddle.mean(x, 2, keepdim=True) + paddle.sum(x, -1, keepdim=True), 2),
    "loss": lambda x: functional.cross_entropy(x.reshape([-1, 8]), paddle.argmax(x.reshape([-1, 8]), -1, keepdim=True)),
    "embedding": lambda x: nn.Embedding(10, 4)(x.astype("int64")),
    "concatenated and divided": lambda x: paddle.concat(paddle.split(x.reshape([-1, 8]), 2, -1)[::-1], -1)[:, 1:5],
    "stacked": lambda x: paddle.stack([x.reshape([-1, 8])] * 2),
    "broadcast": lambda x: x + paddle.ones([8]) * paddle.mean(x, 0, keepdim=True),
    "comparison": lambda x: paddle.where(x > 0, x, paddle.zeros_like(x)),
}
UNKNOWN: dict[str, Builder] = {
    "first sample left out": lambda x: x[1:],
    "joined along the samples": lambda x: paddle.concat([x, x], 0),
    "repeated": lambda x: paddle.tile(x, [2, 1, 1]),
    "positions cut": lambda x: x[:, 2:].reshape([-1, 8]),
    "convolution": lambda x: nn.Conv1D(8, 3, 3)(x.transpose([0, 2, 1])),
    "padded": lambda x: functional.pad(x, [0, 0, 1, 1, 0, 0]),
    "chosen": lambda x: paddle.masked_select(x, x > 0),
    "positions": lambda x: paddle.nonzero(x > 0),
    "distinct": lambda x: paddle.unique(x),
    "counted": lambda x: paddle.bincount(x.flatten().astype("int64")),
    "halved by a gate": lambda x: functional.glu(x, axis=1),
    "segments": lambda x: paddle.geometric.segment_sum(x.reshape([-1, 8]), paddle.ones([B * T], "int64")),
    "repeated elements": lambda x: paddle.repeat_interleave(x, 2, 0),
    "expanded": lambda x: paddle.mean(x, 1, keepdim=True).expand([-1, 3, 8]),
    "pooled": lambda x: functional.max_pool1d(x, 2, 2),
}


@pytest.fixture(autouse=True)
def _static() -> Any:
    paddle.enable_static()
    yield
    paddle.disable_static()


def built(builder: Builder, shape: tuple[int, ...]) -> Program:
    program = paddle.static.Program()
    with paddle.static.program_guard(program, paddle.static.Program()):
        x = paddle.static.data("x", shape, "float32")
        x.stop_gradient = False
        result = builder(x)
        if result.dtype == paddle.float32 and not result.stop_gradient:
            paddle.static.append_backward(paddle.mean(result))
    return read(program)


def compared(builder: Builder, shape: tuple[int, ...]) -> tuple[list[Any], list[Any]]:
    """Return the shapes of all tensors, as derived from the program with open sizes, and as Paddle derives them."""
    fixed, opened = built(builder, (B, T, 8)), built(builder, shape)
    assert [operator.name for operator in opened.operators] == [operator.name for operator in fixed.operators]
    return Shapes(opened, {"x": (B, T, 8)}).sizes, [value.sizes for value in fixed.values]


@pytest.mark.parametrize("shape", [(-1, T, 8), (-1, -1, 8)], ids=["samples", "samples and positions"])
@pytest.mark.parametrize("name", KNOWN)
def test_all_shapes_are_known(name: str, shape: tuple[int, ...]) -> None:
    derived, fixed = compared(KNOWN[name], shape)
    different = [expected for sizes, expected in zip(derived, fixed, strict=True) if sizes != expected]
    # mean and variance, which only the backward pass of the operator reads
    assert different == ([(B, T), (B, T)] if name == "layer norm" and shape[1] < 0 else [])


@pytest.mark.parametrize("shape", [(-1, T, 8), (-1, -1, 8)], ids=["samples", "samples and positions"])
@pytest.mark.parametrize("name", UNKNOWN)
def test_no_shape_is_wrong(name: str, shape: tuple[int, ...]) -> None:
    derived, fixed = compared(UNKNOWN[name], shape)
    for sizes, expected in zip(derived, fixed, strict=True):
        assert sizes is None or -1 in expected or sizes == expected


def test_a_shape_that_the_program_reads() -> None:
    program = built(heads, (B, -1, 8))
    sizes = Shapes(program, {"x": (B, T, 8)}).sizes
    (product,) = [operator for operator in program.operators if operator.name == "matmul"][-1].results
    assert isinstance(product, int)
    assert sizes[product] == (B, 2, T, T)
