"""FLOPs of layers against loops that count each multiplication."""

from __future__ import annotations

from itertools import product

import pytest

from perfkit_core.recording import layer_flops
from perfkit_core.trace.model.architecture import Flops, Signature, TensorSpec


def call(
    *inputs: tuple[int, ...], output: tuple[int, ...] = (), gradients: tuple[bool, ...] = (), weights: bool = False
) -> Signature:
    tensors = tuple(TensorSpec(shape, "float32") for shape in inputs)
    return Signature(tensors, (TensorSpec(output, "float32"),), gradients, weights)


def multiplications(*ranges: int) -> int:
    return sum(1 for _ in product(*map(range, ranges)))


def test_linear_multiplies_each_row_with_each_column() -> None:
    assert layer_flops.linear(call((5, 7)), 3) == Flops(2 * multiplications(5, 3, 7), 0)
    assert layer_flops.linear(call((2, 5, 7)), 3).forward == 2 * multiplications(2, 5, 3, 7)


@pytest.mark.parametrize(("gradient", "weights", "products"), [(True, True, 2), (False, True, 1), (True, False, 1)])
def test_backward_computes_one_product_for_each_gradient(gradient: bool, weights: bool, products: int) -> None:
    found = layer_flops.linear(call((5, 7), gradients=(gradient,), weights=weights), 3)
    assert found.backward == products * found.forward


def test_bilinear_multiplies_both_inputs_with_each_matrix() -> None:
    found = layer_flops.bilinear(call((5, 3), (5, 4), gradients=(True, False), weights=True), (6, 3, 4))
    assert found == Flops(2 * multiplications(5, 6, 3, 4), 2 * 2 * multiplications(5, 6, 3, 4))


def test_convolution_multiplies_each_weight_at_each_position() -> None:
    grouped = layer_flops.convolution(call((2, 6, 8, 8), output=(2, 4, 6, 6)), (4, 3, 3, 3), transposed=False)
    assert grouped.forward == 2 * multiplications(2, 4, 6, 6, 3, 3, 3)
    transposed = layer_flops.convolution(call((2, 6, 5, 5), output=(2, 4, 7, 7)), (6, 4, 3, 3), transposed=True)
    assert transposed.forward == 2 * multiplications(2, 6, 5, 5, 4, 3, 3)
    single = layer_flops.convolution(call((6, 8, 8), output=(4, 6, 6)), (4, 6, 3, 3), transposed=False)
    assert single.forward == 2 * multiplications(4, 6, 6, 6, 3, 3)


def test_attention_of_a_first_layer_has_no_gradient_of_its_input() -> None:
    projection, mixing = 2 * multiplications(2, 5, 8, 8), 2 * 2 * multiplications(2, 5, 5, 8)
    first = layer_flops.attention(call((2, 5, 8), gradients=(False,), weights=True), 8, 5, True, True)
    assert first == Flops(4 * projection + mixing, 3 * projection + 2 * projection + 2 * mixing)
    inner = layer_flops.attention(call((2, 5, 8), gradients=(True,), weights=True), 8, 5, True, True)
    assert inner.backward == 2 * inner.forward


def test_cross_attention_counts_only_gradients_that_are_computed() -> None:
    query, key, value = (
        2 * multiplications(2, 5, 8, 8),
        2 * multiplications(2, 7, 8, 6),
        2 * multiplications(2, 7, 8, 4),
    )
    mixing = 2 * 2 * multiplications(2, 5, 7, 8)
    gradients = (True, False, False)
    found = layer_flops.attention(
        call((2, 5, 8), (2, 7, 6), (2, 7, 4), gradients=gradients, weights=True), 8, 7, True, True
    )
    assert found.forward == query + key + value + query + mixing
    assert found.backward == 2 * query + key + value + 2 * query + 2 * mixing


def test_recurrent_layers_multiply_each_weight_at_each_position() -> None:
    of_input, of_others = 4 * 16 * 8, 4 * 16 * 16
    found = layer_flops.recurrent(call((10, 3, 8), gradients=(False,), weights=True), of_input, of_others)
    first, others = 2 * multiplications(10, 3) * of_input, 2 * multiplications(10, 3) * of_others
    assert found == Flops(first + others, first + 2 * others)
    cell = layer_flops.recurrent(
        call((3, 8), (3, 16), gradients=(True, False), weights=True), of_input, of_others, hidden_gradient=False
    )
    assert cell.backward == 2 * 3 * (2 * of_input + of_others)
