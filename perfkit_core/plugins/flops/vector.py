"""FLOPs and bytes of operators without matrix products: elementwise operators, reductions, normalizations and others.

The number of FLOPs of a function such as ``exp`` depends on the hardware. By convention, each arithmetic operation and
each function counts as one FLOP for each element. Copies count none. Such operators are limited by the memory, so their
bytes matter more. A formula raises ValueError if the shapes do not fit."""

import math
from collections.abc import Sequence
from typing import Final

from perfkit_core.plugins.flops.arguments import Argument, Tensor, Work, broadcast, flat, moved

NORMALIZE: Final = 5
"""FLOPs of an element in a normalization: mean, difference, square, sum of squares, scaling."""
AFFINE: Final = 2
"""FLOPs of an element for the multiplication with a weight and the addition of a bias."""
SOFTMAX: Final = 5
"""FLOPs of an element in a softmax: maximum, difference, exponential, sum, quotient."""
_RANKS: Final = ("bool", "uint8", "int8", "int16", "int32", "int64", "float8", "bfloat16", "float16", "float32",
                 "float64", "complex64", "complex128")  # fmt: skip
"""Data types, narrowest first. The result of an elementwise operator has the widest type of its inputs."""


def promoted(tensors: Sequence[Tensor]) -> str | None:
    """Return the type of an elementwise result. Tensors without dimensions do not widen the type of the others."""
    shaped = [tensor for tensor in tensors if tensor.shape] or tensors
    types = [tensor.dtype for tensor in shaped]
    if None in types:
        return None
    ranks = [_RANKS.index(dtype) for dtype in types if dtype in _RANKS]
    if {"bfloat16", "float16"} <= set(types):
        return "float32"
    return _RANKS[max(ranks)] if ranks else None


def elementwise(inputs: Argument, per_element: int = 1, result: str | None = None) -> Work:
    """Return the work of an elementwise operator: ``per_element`` FLOPs for each element of the result. ``result``:
    type of the result; by default, the widest type of the inputs."""
    tensors = flat(inputs)
    if not tensors:
        raise ValueError("an elementwise operator needs a tensor")
    output = Tensor(broadcast(*(tensor.shape for tensor in tensors)), result or promoted(tensors))
    return Work(per_element * output.elements, moved((*tensors, output)), dtype=promoted(tensors))


def lists(results: Argument, others: Argument = None, per_element: int = 1, reads: int = 1) -> Work:
    """Return the work of an elementwise operator on lists of tensors: ``per_element`` FLOPs for each element of the
    first list, whose tensors it changes, and also reads unless ``reads`` is 0."""
    changed, read = flat(results), flat(others)
    elements = sum(tensor.elements for tensor in changed)
    return Work(per_element * elements, moved((*changed, *(changed if reads else ()), *read)))


def gated(input: Tensor, gate: Argument = None, dim: Argument = -1) -> Work:
    """Return the work of an activation that multiplies one half of ``input`` along ``dim`` with a function of the other
    half, such as a GLU: one FLOP for each element of the result. If ``gate`` is a tensor, it is the other half."""
    if isinstance(gate, Tensor):
        return elementwise((input, gate))
    sizes = list(input.shape)
    sizes[dim] //= 2
    result = Tensor(tuple(sizes), input.dtype)
    return Work(result.elements, moved((input, result)), dtype=input.dtype)


def gated_gradient(gradient: Tensor, input: Tensor) -> Work:
    """Return the work of the gradient of :func:`gated`: one FLOP for each element of ``input``."""
    return Work(input.elements, moved((gradient, input, input)), dtype=input.dtype)


def sized_elementwise(inputs: Argument, sizes: Sequence[int]) -> Work:
    """Return the work of an elementwise operator whose result has the shape ``sizes``: one FLOP for each element of the
    result, or of the largest input if it has more."""
    tensors = flat(inputs)
    result = Tensor(tuple(sizes), promoted(tensors))
    elements = max(tensor.elements for tensor in (*tensors, result))
    return Work(elements, moved((*tensors, result)), dtype=promoted(tensors))


def dropout(input: Tensor, mask: Argument = True) -> Work:
    """Return the work of a dropout: two FLOPs for each element (random number, product). Besides the result, a mask
    with one byte for each element is written, unless ``mask`` is false."""
    stored_mask = Tensor(input.shape, "bool") if mask else None
    return Work(2 * input.elements, moved((input, input, stored_mask)), dtype=input.dtype)


def copy(result: Tensor, source: Tensor) -> Work:
    """Return the work of a copy into ``result``, from a tensor that may have another type or fewer elements. It has no
    FLOPs."""
    return Work(0, moved((result, source)), dtype=source.dtype)


def fill(result: Tensor) -> Work:
    """Return the work of writing a value to each element. It has no FLOPs."""
    return Work(0, result.bytes, dtype=result.dtype)


def concatenate(tensors: Argument) -> Work:
    """Return the work of joining tensors: each is read and written once. It has no FLOPs."""
    size = moved(flat(tensors))
    return Work(0, None if size is None else 2 * size)


def reduce(
    input: Tensor,
    dims: Argument = None,
    keep: Argument = None,
    per_element: int = 1,
    result: str | None = None,
    integers: str | None = None,
    places: str | None = None,
    results: int = 1,
) -> Work:
    """Return the work of a reduction over ``dims`` (over all dimensions if None): ``per_element`` FLOPs for each input
    element. If ``dims`` is a second tensor, as in ``max(a, b)``, the operator is elementwise.

    ``result`` is the type of the results, by default that of the input; ``integers`` is their type if the input has
    integers or booleans. ``results`` is their number, without indices of the type ``places``, which a reduction over
    given dimensions also has."""
    if isinstance(dims, Tensor):
        return elementwise((input, dims), per_element)
    count = len(input.shape)
    chosen = dims if isinstance(dims, tuple) else (dims,)
    reduced = {dim % count for dim in chosen if type(dim) is int and -count <= dim < count} if count else set()
    shape = tuple(size for axis, size in enumerate(input.shape) if axis not in reduced) if reduced else ()
    output = Tensor(shape, result or _counted_as(input.dtype, integers))
    indices = Tensor(shape, places) if places and reduced else None
    return Work(per_element * input.elements, moved((input, *[output] * results, indices)), dtype=input.dtype)


def _counted_as(dtype: str | None, integers: str | None) -> str | None:
    """Return the type of a sum of numbers of the type ``dtype``: ``integers`` for integers and booleans."""
    return integers if integers and dtype and dtype.startswith(("int", "uint", "bool")) else dtype


def scan(input: Tensor, per_element: int = 1, integers: str | None = None) -> Work:
    """Return the work of an operator that reads each element once and writes a result of the same shape:
    ``per_element`` FLOPs for each element. ``integers`` is the type of the result if the input has integers."""
    result = Tensor(input.shape, _counted_as(input.dtype, integers))
    return Work(per_element * input.elements, moved((input, result)), dtype=input.dtype)


def softmax(input: Tensor) -> Work:
    """Return the work of a softmax: five FLOPs for each element (maximum, difference, exponential, sum, quotient)."""
    return scan(input, SOFTMAX)


def softmax_gradient(gradient: Tensor, output: Tensor) -> Work:
    """Return the work of y · (dy − Σ y·dy): four FLOPs for each element."""
    return Work(4 * output.elements, moved((gradient, output, output)), dtype=output.dtype)


def normalize(
    input: Tensor, weight: Argument = None, bias: Argument = None, trained: Argument = True, inference: Argument = None
) -> Work:
    """Return the work of a normalization: five FLOPs for each element (mean, difference, square, sum of squares,
    scaling), or two if not ``trained`` or for ``inference``, because the statistics are known. With a weight or a bias,
    two more FLOPs for each element."""
    parameters = flat(weight, bias)
    per_element = (NORMALIZE if trained is not False and inference is not True else AFFINE) + (
        AFFINE if parameters else 0
    )
    return Work(per_element * input.elements, moved((input, *parameters, input)), dtype=input.dtype)


def normalize_gradient(gradient: Tensor, input: Tensor, weight: Argument = None) -> Work:
    """Return the work of the gradients of input, weight and bias: ten FLOPs for each element, or 14 with a weight. This
    is twice the forward pass, because the input's gradient has two sums over the normalized elements."""
    parameters = flat(weight)
    work = 2 * (NORMALIZE + (AFFINE if parameters else 0)) * input.elements
    return Work(work, moved((gradient, input, *parameters, input, *parameters)), dtype=input.dtype)


def pool(
    input: Tensor, window: Sequence[int], stride: Argument = None, padding: Argument = None, dilation: Argument = None,
    ceil: Argument = None, places: str | None = None,
) -> Work:  # fmt: skip
    """Return the work of max or average pooling: one FLOP for each element of each window. ``places`` is the type of
    the indices of the maxima, which are also results."""
    if not isinstance(window, tuple):
        raise ValueError("pooling needs the size of its window")
    count = len(window)
    strides = stride if isinstance(stride, tuple) and stride else window
    paddings, dilations = (
        (value if isinstance(value, tuple) else (default,)) for value, default in ((padding, 0), (dilation, 1))
    )
    sizes = []
    for axis, size in enumerate(input.shape[-count:]):
        s, p, d = (values[axis if len(values) > 1 else 0] for values in (strides, paddings, dilations))
        free = size + 2 * p - d * (window[axis] - 1) - 1
        windows = (-(-free // s) if ceil is True else free // s) + 1
        sizes.append(windows - (ceil is True and (windows - 1) * s >= size + p))  # none begins in the right padding
    if min(sizes) < 1:
        raise ValueError(f"a window of {window} is larger than an input of {input.shape}")
    output = Tensor((*input.shape[:-count], *sizes), input.dtype)
    indices = Tensor(output.shape, places) if places else None
    return Work(output.elements * math.prod(window), moved((input, output, indices)), dtype=input.dtype)


def adaptive_pool(input: Tensor, size: Sequence[int], places: str | None = None) -> Work:
    """Return the work of pooling to a result of ``size``: about one FLOP for each input element. ``places`` is the type
    of the indices of the maxima, which are also results."""
    if not isinstance(size, tuple):
        raise ValueError("adaptive pooling needs the size of its result")
    output = Tensor((*input.shape[: -len(size)], *size), input.dtype)
    indices = Tensor(output.shape, places) if places else None
    return Work(input.elements, moved((input, output, indices)), dtype=input.dtype)


def sized_pool(
    input: Tensor, window: Sequence[int], sizes: Sequence[int], adaptive: Argument = None, places: str | None = None
) -> Work:
    """Return the work of :func:`pool` if the shape of the result is known. If ``adaptive`` (one or several flags), the
    windows cover the input: about one FLOP for each input element."""
    output = Tensor(tuple(sizes), input.dtype)
    covers = any(adaptive) if isinstance(adaptive, tuple) else adaptive is True
    flops = input.elements if covers else output.elements * math.prod(window)
    indices = Tensor(output.shape, places) if places else None
    return Work(flops, moved((input, output, indices)), dtype=input.dtype)


def pool_gradient(gradient: Tensor, input: Tensor, indices: Argument = None) -> Work:
    """Return the work of the gradient of pooling or of a reduction: one FLOP for each element of ``gradient``, which is
    added to the gradient of the input. ``indices`` are the places of the maxima."""
    return Work(gradient.elements, moved((gradient, input, *flat(indices))), dtype=gradient.dtype)


def gather(table: Tensor, indices: Tensor, dim: Argument = 0) -> Work:
    """Return the work of reading the rows of ``table`` that ``indices`` name: an embedding or an index selection. It
    has no FLOPs."""
    axis = dim % len(table.shape) if type(dim) is int and table.shape else 0
    row = table.elements // max(table.shape[axis], 1) if table.shape else 1
    rows = Tensor((indices.elements, row), table.dtype)
    return Work(0, moved((rows, indices, rows)), dtype=table.dtype)


def gather_sum(
    table: Tensor, indices: Tensor, starts: Argument = None, weights: Argument = None, with_end: Argument = None
) -> Work:
    """Return the work of adding up the rows of ``table`` that ``indices`` name, in bags: one FLOP for each element of
    these rows. ``starts`` has the start of each bag in ``indices`` and, if ``with_end``, the end of the last bag. If
    ``indices`` has two dimensions, each of its rows is a bag. ``weights`` has a factor of each row."""
    if len(indices.shape) == 2:
        bags = indices.shape[0]
    elif isinstance(starts, Tensor):
        bags = starts.elements - bool(with_end)
    else:
        raise ValueError("the bags are not recorded")
    width = table.shape[-1]
    rows, results = Tensor((indices.elements, width), table.dtype), Tensor((bags, width), table.dtype)
    return Work(rows.elements, moved((rows, indices, *flat(starts, weights), results)), dtype=table.dtype)


def scatter(gradient: Tensor, indices: Tensor, rows: Argument = None) -> Work:
    """Return the work of adding the rows of ``gradient`` to a table, such as the gradient of an embedding: one FLOP for
    each element of ``gradient``. ``rows``: the number of the table's rows, or its shape."""
    rows = rows[0] if isinstance(rows, tuple) else rows
    count = rows if type(rows) is int else indices.elements
    table = Tensor((count, gradient.elements // max(indices.elements, 1)), gradient.dtype)
    return Work(gradient.elements, moved((gradient, indices, table)), dtype=gradient.dtype)


def loss(input: Tensor, target: Argument = None, reduction: Argument = None, per_element: int = 1) -> Work:
    """Return the work of a loss that reads inputs and targets: ``per_element`` FLOPs for each element of ``input``. The
    result is one number, or the losses of all elements if ``reduction`` is 0 or none."""
    result = Tensor(input.shape if reduction in (0, "none") and reduction is not False else (), input.dtype)
    return Work(per_element * input.elements, moved((input, *flat(target), result)), dtype=input.dtype)


def picked_loss(input: Tensor, target: Tensor) -> Work:
    """Return the work of a loss that reads one element for each target, such as the negative log likelihood: one FLOP
    for each target."""
    read = Tensor(target.shape, input.dtype)
    return Work(target.elements, moved((read, target)), dtype=input.dtype)


def picked_loss_gradient(input: Tensor, target: Tensor) -> Work:
    """Return the work of the gradient of :func:`picked_loss`, which has the shape of the input: one FLOP for each
    target."""
    return Work(target.elements, moved((target, input)), dtype=input.dtype)


def optimizer(parameters: Argument, gradients: Argument, states: Argument = None, per_element: int = 2) -> Work:
    """Return the work of an update of all parameters in one call: ``per_element`` FLOPs for each element of a
    parameter. Parameters and states are read and written, gradients are read. ``states`` holds lists of tensors with
    the shapes of the parameters."""
    updated, read, state_tensors = flat(parameters), flat(gradients), flat(states)
    elements = sum(tensor.elements for tensor in updated)
    full = tuple(tensor for tensor in state_tensors if tensor.shape)
    return Work(per_element * elements, moved((*updated, *full, *updated, *full, *read)))
