"""FLOPs of one call of a layer, forward and backward, from its tensors and weights.

The backward pass repeats each product once for each factor that has a gradient. Biases, norms and activations count as
0 FLOPs, as in most FLOPs counters."""

from __future__ import annotations

from collections.abc import Sequence

from perfkit_core.plugins.flops import matrix
from perfkit_core.plugins.flops.arguments import Tensor
from perfkit_core.trace.model.architecture import Flops, Signature


def linear(call: Signature, outputs: int) -> Flops:
    """Return the FLOPs of the product of the input with a matrix that has ``outputs`` columns."""
    shape = call.inputs[0].shape
    forward = matrix.linear(Tensor(shape), Tensor((outputs, shape[-1]))).flops
    return _of_products((forward, call.gradient(0), call.weight_gradient))


def bilinear(call: Signature, weight: Sequence[int]) -> Flops:
    """Return the FLOPs of x1ᵀ·A·x2. ``weight``: shape (outputs, features of x1, features of x2)."""
    first, second = (Tensor(tensor.shape) for tensor in call.inputs[:2])
    forward = matrix.bilinear(first, second, Tensor(tuple(weight))).flops
    return _of_products((forward, call.gradient(0), call.gradient(1), call.weight_gradient))


def convolution(call: Signature, weight: Sequence[int], transposed: bool) -> Flops:
    """Return the FLOPs of a convolution. ``weight``: shape of its weights, with two dimensions before the kernel."""
    shape = (call.inputs[0] if transposed else call.outputs[0]).shape
    sizes = shape[-(len(weight) - 2) :]
    samples = shape[0] if len(shape) == len(weight) else 1
    forward = matrix.of_positions(samples, sizes, Tensor(tuple(weight)))
    return _of_products((forward, call.gradient(0), call.weight_gradient))


def attention(call: Signature, width: int, keys: int, projected: bool, output_weight: bool) -> Flops:
    """Return the FLOPs of multi-head attention, for all heads.

    - ``width``: features of the projected queries, keys and values.
    - ``keys``: number of positions that each query attends to.
    - ``projected``: whether the layer itself computes the projections of its inputs and of its output. If not, they are
      separate layers.
    - ``output_weight``: whether the weight of the projection of the output has a gradient."""
    inputs = [tensor.shape for tensor in call.inputs]
    inputs = inputs * 3 if len(inputs) == 1 else inputs[:3]
    gradients = [call.gradient(number if len(call.inputs) > 1 else 0) for number in range(len(inputs))]
    queries = Tensor((*inputs[0][:-1], width))
    scores = 2 * queries.elements * keys  # the weighted sum of the values takes as many
    inner = any(gradients) or call.weight_gradient
    products = [(2 * scores, inner, inner)]
    if projected:
        for shape, gradient in zip(inputs, gradients, strict=True):
            forward = matrix.linear(Tensor(shape), Tensor((width, shape[-1]))).flops
            products.append((forward, gradient, call.weight_gradient))
        products.append((2 * queries.elements * width, inner, output_weight))
    return _of_products(*products)


def recurrent(call: Signature, of_input: int, of_others: int, hidden_gradient: bool = True) -> Flops:
    """Return the FLOPs of a recurrent layer.

    - ``of_input``: number of weights that multiply the input. ``of_others``: number of all other weights, which
      multiply hidden states.
    - ``hidden_gradient``: whether the hidden states have gradients if anything has one."""
    positions = Tensor(call.inputs[0].shape[:-1]).elements
    inner = hidden_gradient and (call.input_gradient or call.weight_gradient)
    first, hidden = (2 * positions * weights for weights in (of_input, of_others))
    return _of_products((first, call.gradient(0), call.weight_gradient), (hidden, inner, call.weight_gradient))


def _of_products(*products: tuple[int, *tuple[bool, ...]]) -> Flops:
    """Return the FLOPs of products, each given as its forward FLOPs and whether each of its factors has a gradient."""
    forward = sum(flops for flops, *_ in products)
    return Flops(forward, sum(flops * sum(factors) for flops, *factors in products))
