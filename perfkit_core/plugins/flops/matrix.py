"""FLOPs of matrix products, convolutions, attention and recurrent layers.

Each formula counts two FLOPs for each multiply-add. Biases, scales and activations are not counted, as in most FLOPs
counters. A formula raises ValueError if the shapes do not fit or if they do not determine the FLOPs."""

import contextlib
import itertools
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from perfkit_core.plugins.flops.arguments import Argument, Product, Tensor, Work, broadcast, flat, moved

_WIDER: Final = {"int8": "int32", "uint8": "int32", "float8": "bfloat16"}
"""Type of the inputs of a matrix product → type of its result, where the result is wider."""


def matmul(
    a: Tensor,
    b: Tensor,
    bias: Tensor | None = None,
    transpose_a: Argument = None,
    transpose_b: Argument = None,
    scales: Argument = None,
) -> Work:
    """Return the work of ``a @ b``: 2 · batch · m · n · k FLOPs. Dimensions before the last two are broadcast.
    ``transpose_a`` and ``transpose_b`` say whether the last two dimensions of a factor are swapped before. ``scales``
    are factors of the values in ``a`` and ``b``, which are read, too."""
    a, b = _transposed(a, transpose_a), _transposed(b, transpose_b)
    left = a.shape if len(a.shape) > 1 else (1, *a.shape)
    right = b.shape if len(b.shape) > 1 else (*b.shape, 1)
    (m, k), (rows, n) = left[-2:], right[-2:]
    if k != rows:
        raise ValueError(f"inner sizes differ: {a.shape} @ {b.shape}")
    batch = broadcast(left[:-2], right[:-2])
    shape = (*batch, *((m,) if len(a.shape) > 1 else ()), *((n,) if len(b.shape) > 1 else ()))
    result = Tensor(shape, _WIDER.get(a.dtype or "", a.dtype))
    if len(right) == 2:  # all rows of `a` multiply the same matrix
        batch, m = (), math.prod(left[:-1])
    product = Product(math.prod(batch), m, n, k)
    return Work(2 * math.prod(product), moved((a, b, bias, *flat(scales), result)), True, a.dtype, product)


def summed_matmul(bias: Tensor, a: Tensor, b: Tensor) -> Work:
    """Return the work of the sum of all products ``a[i] @ b[i]``, with the FLOPs of :func:`matmul`. The result is one
    matrix."""
    work = matmul(a, b)
    result = Tensor((a.shape[-2], b.shape[-1]), a.dtype)
    return replace(work, bytes=moved((a, b, bias, result)))


def _transposed(factor: Tensor, swapped: Argument) -> Tensor:
    if not swapped or len(factor.shape) < 2:
        return factor
    *batch, rows, columns = factor.shape
    return Tensor((*batch, columns, rows), factor.dtype)


def matmul_gradient(
    a: Tensor,
    b: Tensor,
    gradient: Tensor,
    wanted: Sequence[Argument],
    transpose_a: Argument = None,
    transpose_b: Argument = None,
) -> Work:
    """Return the work of the gradients of :func:`matmul`: dA = dC·Bᵀ and dB = Aᵀ·dC. ``wanted`` says which of the two
    are computed. Each takes as many FLOPs as the forward pass: 2 · batch · m · n · k."""
    of_a, of_b = map(bool, wanted)
    tensors = (gradient, *((b, a) if of_a else ()), *((a, b) if of_b else ()))
    forward = matmul(a, b, None, transpose_a, transpose_b)
    return Work((of_a + of_b) * forward.flops, moved(tensors), True, a.dtype)


def matmul_of_unknown_layout(a: Tensor, b: Tensor) -> Work:
    """Return the work of :func:`matmul` if it is not recorded whether its factors are transposed. The FLOPs are known
    if they are the same in all cases in which the inner sizes are equal. Otherwise, ValueError is raised."""
    fits = []
    for swapped in itertools.product((False, True), repeat=2):
        with contextlib.suppress(ValueError):
            fits.append(matmul(a, b, None, *swapped))
    if len({work.flops for work in fits}) != 1:
        raise ValueError(f"it is not recorded which factor is transposed: {a.shape} @ {b.shape}")
    return fits[0]


def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Work:
    """Return the work of ``input @ weight.T``: 2 · rows of ``input`` · elements of ``weight`` FLOPs. ``weight`` has the
    shape (output features, input features)."""
    return matmul(input, Tensor(weight.shape[::-1], weight.dtype), bias)


def bilinear(first: Tensor, second: Tensor, weight: Tensor) -> Work:
    """Return the work of x1ᵀ·A·x2 with one matrix A for each output: 2 · rows · elements of ``weight`` FLOPs. The shape
    of ``weight`` is (outputs, features of x1, features of x2). The products x1ᵀ·A are counted. Their products with x2
    are elementwise and are not counted."""
    rows = math.prod(first.shape[:-1])
    result = Tensor((rows, weight.shape[0]), first.dtype)
    return Work(2 * rows * weight.elements, moved((first, second, weight, result)), True, first.dtype)


def grouped_matmul(a: Tensor, b: Tensor, ends: Tensor | None = None) -> Work:
    """Return the work of m × k matrices ``a`` times k × n matrices ``b``, one product for each group: 2 · m · n · k
    FLOPs for each group. A factor with three dimensions has one matrix for each group. The groups split the other
    factor: the rows of ``a``, the columns of ``b``, or, if both have two dimensions, the inner dimension. ``ends`` has
    the end of each group."""
    if len(a.shape) == 3 and len(b.shape) == 3:
        return matmul(a, b)
    flops = 2 * a.shape[-2] * b.shape[-1] * a.shape[-1]  # the sum over the groups, which split one of the three sizes
    shape: tuple[int, ...] = (a.shape[-2], b.shape[-1])
    if len(a.shape) == len(b.shape):
        if ends is None:  # the result has an unknown number of matrices
            return Work(flops, None, True, a.dtype)
        shape = (ends.elements, *shape)
    return Work(flops, moved((a, b, ends, Tensor(shape, a.dtype))), True, a.dtype)


def convolution(
    input: Tensor,
    weight: Tensor,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    bias: Tensor | None = None,
    transposed: bool = False,
    output_padding: Sequence[int] | None = None,
    groups: int | None = None,
) -> Work:
    """Return the work of a convolution: 2 · samples · positions · elements of ``weight`` FLOPs, because each weight
    takes part in one multiply-add at each position of the result (of the input if transposed). The shapes are (samples,
    channels, *sizes) and (channels, channels per group, *kernel). ``groups`` does not appear in the FLOPs: it already
    reduces the number of weights. It only gives the channels of a transposed result."""
    sizes, kernel = input.shape[2:], weight.shape[2:]
    if len(input.shape) != len(weight.shape) or any(
        not isinstance(values, tuple) for values in (stride, padding, dilation)
    ):
        raise ValueError("a convolution needs its stride, padding and dilation")
    stride, padding, dilation = (_per_axis(values, len(kernel)) for values in (stride, padding, dilation))
    reach = [d * (k - 1) + 1 for d, k in zip(dilation, kernel, strict=True)]
    if transposed:
        extra = _per_axis(output_padding or (0,), len(kernel))
        grown = zip(sizes, stride, padding, reach, extra, strict=True)
        result = [(size - 1) * s - 2 * p + r + e for size, s, p, r, e in grown]
    else:
        result = [(n + 2 * p - r) // s + 1 for n, s, p, r in zip(sizes, stride, padding, reach, strict=True)]
    if min(result, default=1) < 1:
        raise ValueError(f"a kernel of {kernel} is larger than an input of {sizes}")
    # The weights of a transposed convolution have the shape (input channels, result channels per group, *kernel).
    channels = weight.shape[1] * (groups or 1) if transposed else weight.shape[0]
    output = Tensor((input.shape[0], channels, *result), input.dtype)
    flops = of_positions(input.shape[0], sizes if transposed else result, weight)
    return Work(flops, moved((input, weight, bias, output)), True, input.dtype)


def convolution_gradient(
    gradient: Tensor, input: Tensor, weight: Tensor, wanted: Sequence[Argument], transposed: bool = False
) -> Work:
    """Return the work of the backward pass of a convolution. ``wanted`` says whether the gradients of input, weight and
    bias are computed. Each of the first two takes as many FLOPs as the forward pass. The third has no FLOPs."""
    if not isinstance(wanted, tuple):
        raise ValueError("it is not recorded which gradients are computed")
    of_input, of_weight, of_bias = (*map(bool, wanted), False)[:3]
    tensors = (gradient, *((weight, input) if of_input else ()), *((input, weight) if of_weight else ()))
    tensors += (Tensor(gradient.shape[1:2], gradient.dtype),) if of_bias else ()
    flops = (of_input + of_weight) * _of_weights(input if transposed else gradient, weight)
    return Work(flops, moved(tensors), True, input.dtype)


def sized_convolution(
    input: Tensor, weight: Tensor, sizes: Sequence[int], bias: Tensor | None = None, transposed: Argument = None
) -> Work:
    """Return the work of a :func:`convolution` whose result has the shape ``sizes``, with the same FLOPs. The channels
    of input and result may be in any dimension. Stride, padding, dilation and groups are not needed."""
    result = Tensor(tuple(sizes), input.dtype)
    flops = _of_weights(input if transposed else result, weight)
    return Work(flops, moved((input, weight, bias, result)), True, input.dtype)


def _of_weights(positions: Tensor, weight: Tensor) -> int:
    """Return the FLOPs of a convolution. At each position, each weight takes part in one multiply-add. ``positions`` is
    the result (the input if transposed): its channels are the first dimension of the weights."""
    return 2 * positions.elements // weight.shape[0] * weight.elements


def of_positions(samples: int, sizes: Sequence[int], weight: Tensor) -> int:
    """Return the FLOPs of a convolution: at each position, each weight takes part in one multiply-add."""
    return 2 * samples * math.prod(sizes) * weight.elements


def _per_axis(values: Sequence[int], count: int) -> Sequence[int]:
    return tuple(values) * count if len(values) == 1 else values


def attention(query: Tensor, key: Tensor, value: Tensor, causal: Argument = None, bias: Tensor | None = None) -> Work:
    """Return the work of softmax(Q·Kᵀ)·V: 2 · pairs · (features of K + features of V) FLOPs. The shapes are (samples,
    heads, positions, features). ``pairs`` is samples · heads · positions of Q · positions of K. If ``causal``, a query
    attends to its own and to earlier positions, and the pairs that the mask removes are not counted: n positions have n
    · (n + 1) / 2 pairs. Several heads of Q may share a head of K and V. The softmax is not counted."""
    pairs = query.elements // query.shape[-1] // query.shape[-2] * _pairs(query.shape[-2], key.shape[-2], causal)
    result = Tensor((*query.shape[:-1], value.shape[-1]), query.dtype)
    flops = 2 * pairs * (query.shape[-1] + value.shape[-1])
    return Work(flops, moved((query, key, value, bias, result)), True, query.dtype)


def attention_gradient(
    gradient: Tensor, query: Tensor, key: Tensor, value: Tensor, causal: Argument = None, bias: Tensor | None = None
) -> Work:
    """Return the work of the gradients of :func:`attention`: 2 · pairs · (3 · features of K + 2 · features of V) FLOPs,
    which is 2.5 times the forward pass if the features are equal. The kernels compute the scores Q·Kᵀ again. Four
    products follow: dP = dO·Vᵀ, dV = Pᵀ·dO, dQ = dS·K and dK = dSᵀ·Q."""
    pairs = query.elements // query.shape[-1] // query.shape[-2] * _pairs(query.shape[-2], key.shape[-2], causal)
    scores, weighted = 2 * pairs * query.shape[-1], 2 * pairs * value.shape[-1]
    # dO, O, Q, K and V are read; dQ, dK and dV are written.
    tensors = (gradient, gradient, query, key, value, query, key, value, bias)
    return Work(3 * scores + 2 * weighted, moved(tensors), True, query.dtype, recomputed=scores)


def packed_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    causal: Argument = None,
    query_starts: Argument = None,
    key_starts: Argument = None,
    query_length: Argument = None,
    key_length: Argument = None,
) -> Work:
    """Return the work of :func:`attention`, with the same FLOPs, for tensors of the shape (samples, positions, heads,
    features). If the sequences have different lengths, the shape is (all positions, heads, features): ``query_starts``
    then has the start of each sequence, and ``query_length`` is the greatest length. Recordings do not contain the
    length of each sequence. So the FLOPs are known only if all sequences have the greatest length. Otherwise,
    ValueError is raised."""
    tensors = _unpacked((query, key, value), (query_starts, key_starts), (query_length, key_length))
    return attention(*tensors, causal)


def packed_attention_gradient(
    gradient: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    causal: Argument = None,
    query_starts: Argument = None,
    key_starts: Argument = None,
    query_length: Argument = None,
    key_length: Argument = None,
) -> Work:
    """Return the work of the gradients of :func:`packed_attention`, with the FLOPs of :func:`attention_gradient`."""
    tensors = _unpacked((query, key, value), (query_starts, key_starts), (query_length, key_length))
    return attention_gradient(gradient, *tensors, causal)


def _unpacked(
    tensors: tuple[Tensor, Tensor, Tensor], starts: tuple[Argument, Argument], lengths: tuple[Argument, Argument]
) -> tuple[Tensor, Tensor, Tensor]:
    """Return queries, keys and values with the shape (samples, heads, positions, features)."""
    query, *keys_and_values = tensors
    key, value = (_by_sample(tensor, starts[1], lengths[1]) for tensor in keys_and_values)
    return _by_sample(query, starts[0], lengths[0]), key, value


def _by_sample(tensor: Tensor, starts: Argument, length: Argument) -> Tensor:
    *sizes, heads, features = tensor.shape
    if isinstance(starts, Tensor) or len(sizes) == 1:
        samples = starts.elements - 1 if isinstance(starts, Tensor) else 1
        if not isinstance(length, int) or samples * length != math.prod(sizes):
            raise ValueError("the lengths of the sequences are not recorded")
        sizes = [samples, length]
    samples, positions = sizes
    return Tensor((samples, heads, positions, features), tensor.dtype)


def _pairs(queries: int, keys: int, causal: Argument) -> int:
    """Return the number of pairs of a query and a key. If ``causal``, query i attends to the keys 0 … i."""
    if not causal:
        return queries * keys
    square = min(queries, keys)
    return square * (square + 1) // 2 + (queries - square) * keys


def recurrent(input: Tensor, weights: Argument, states: Argument = None, bidirectional: Argument = None) -> Work:
    """Return the work of a recurrent network of any kind: 2 · positions · elements of the weight matrices FLOPs. The
    matrices are those of the inputs, of the hidden states and of a projection, in all layers and directions. ``input``
    has the features of each position in its last dimension. Biases have no FLOPs, but they are read. ``states`` are
    those before the first position, the hidden state first. They are also results, like the hidden states of the last
    layer at all positions."""
    positions = math.prod(input.shape[:-1])
    read, before = flat(weights), flat(states)
    matrices = [weight for weight in read if len(weight.shape) == 2]
    if not matrices:
        raise ValueError("the weights of the recurrent network are not recorded")
    flops = 2 * positions * sum(weight.elements for weight in matrices)
    if not before:
        return Work(flops, None, True, input.dtype)  # the sizes of the results are unknown
    result = Tensor((positions, before[0].shape[-1] * (2 if bidirectional else 1)), input.dtype)
    return Work(flops, moved((input, *read, *before, result, *before)), True, input.dtype)


def recurrent_gradient(
    input: Tensor, weights: Argument, states: Argument = None, bidirectional: Argument = None
) -> Work:
    """Return the work of the gradients of :func:`recurrent`: two products for each product of the forward pass, so
    twice its FLOPs. The gradient of the input counts even if nothing needs it. Each tensor of the forward pass and its
    gradient are read or written once."""
    forward = recurrent(input, weights, states, bidirectional)
    return Work(2 * forward.flops, forward.bytes and 2 * forward.bytes, True, forward.dtype)
