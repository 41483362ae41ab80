"""The shapes of all tensors of a PIR program in one run, from the shapes of the feeds.

A program has sizes that are only known when it runs, often the number of samples. A size is derived only by rules that
are certain for the operator. Otherwise, the shape is unknown."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from perfkit_core.base.operators.names import GRADIENT_SUFFIX, family
from perfkit_core.plugins.flops.arguments import broadcast
from perfkit_paddle.operator_names import NAMESPACE, operator_name

Sizes = tuple[int, ...]
"""A shape. In a program, :data:`OPEN` is a size that is only known when the program runs."""
OPEN: Final = -1
Places = int | tuple[int, ...] | None
"""The index of a tensor in a program, of each tensor in a list, or None if there is no tensor."""


@dataclass(frozen=True, slots=True)
class Value:
    """A tensor in a program. ``constant`` has its value, a number or several, if the value is in the program."""

    sizes: Sizes
    dtype: str
    constant: Any = None


@dataclass(frozen=True, slots=True)
class ProgramOperator:
    """An operator of a program. ``name`` has neither the namespace ``pd_op`` nor the underscore of in-place variants.
    ``attributes`` are in the order of the operator's definition."""

    name: str
    inputs: tuple[Places, ...]
    results: tuple[Places, ...]
    attributes: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, weakref_slot=True, eq=False)
class Program:
    operators: tuple[ProgramOperator, ...]
    values: tuple[Value, ...]


def flat(operands: Sequence[Places]) -> Iterator[int]:
    """Yield the indices of all tensors, including those in lists."""
    for operand in operands:
        yield from (operand,) if isinstance(operand, int) else operand or ()


_BROADCAST: Final = ("elementwise", "activation", "dropout", "cast")
"""Families whose results have the shape of all inputs, broadcast."""
_NOT_BROADCAST: Final = ("glu", "swiglu", "maxout")
"""Canonical names of operators of these families whose results are smaller."""
_SAME: Final = ("normalization", "softmax")
"""Families whose results have the shape of the first input, if they have the same open sizes."""
_ALONG: Final = frozenset((
    "layer_norm", "group_norm", "rms_norm", "cross_entropy", "nll_loss", "kl_div", "binary_cross_entropy", "norm",
    "argmax", "argmin", "cumsum", "cumprod", "rnn", "bilinear", "attention", "concat", "stack", "one_hot",
))  # fmt: skip
"""Canonical names of operators whose results keep an open size of the inputs, except along the axes that they join."""
_ALONG_NAMES: Final = ("split", "split_with_num", "slice", "strided_slice", "gather", "index_select", "unbind")
"""Names of other such operators. Their canonical names include operators with other results."""
_REDUCED: Final = ("sum", "mean", "max", "min", "prod", "amax", "amin", "any", "all", "logsumexp")
_RESHAPED: Final = ("reshape", "flatten", "squeeze", "unsqueeze", "view_shape")


class Shapes:
    """The shapes of a program's tensors in a run. ``sizes[i]`` is the shape of tensor ``i``, or None if unknown."""

    def __init__(self, program: Program, feeds: Mapping[str, Sizes]) -> None:
        self._values = program.values
        self._feeds = feeds
        self.sizes: list[Sizes | None] = [None if OPEN in value.sizes else value.sizes for value in program.values]
        self.constants = [value.constant for value in program.values]
        for operator in program.operators:
            for result in flat(operator.results):
                if self.sizes[result] is None:
                    self.sizes[result] = self._fitting(result, self._derived(operator, result))
            self._calculate(operator)

    def _fitting(self, result: int, sizes: Sequence[int] | None) -> Sizes | None:
        static = self._values[result].sizes
        if sizes is None or len(sizes) != len(static):
            return None
        fits = all(size >= 0 and static_size in (OPEN, size) for static_size, size in zip(static, sizes, strict=True))
        return tuple(sizes) if fits else None

    def _derived(self, operator: ProgramOperator, result: int) -> Sequence[int] | None:
        name, static = operator.name, self._values[result].sizes
        tensors = list(flat(operator.inputs))
        inputs = [self.sizes[tensor] for tensor in tensors]
        known_sizes = [sizes for sizes in inputs if sizes is not None]
        if name == "data":
            return self._feeds.get(operator.attributes["name"])
        if not inputs:
            return None
        if name in ("transpose", "transpose_grad"):
            return _permuted(inputs[0], operator.attributes["perm"], name.endswith(GRADIENT_SUFFIX))
        if name.endswith(GRADIENT_SUFFIX):  # a gradient has the shape of a tensor of the forward pass
            alike = {self.sizes[tensor] for tensor in tensors if self._values[tensor].sizes == static}
            return alike.pop() if len(alike) == 1 else None
        if name in _RESHAPED:
            return _reshaped(inputs[0], static if static.count(OPEN) == 1 else self._constant(operator, 1))
        if name in _REDUCED and inputs[0] is not None:
            axes = operator.attributes.get("axis")
            axes = self._constant(operator, 1) if axes is None else axes
            return _reduced(inputs[0], axes, operator.attributes.get("keepdim", False))
        if name in ("full_with_tensor", "expand"):
            return self._constant(operator, 1)
        if name in ("matmul", "bmm") and len(known_sizes) == 2:
            swapped = (operator.attributes.get(key, False) for key in ("transpose_x", "transpose_y"))
            return _multiplied(known_sizes[0], known_sizes[1], *swapped)
        if name == "embedding" and inputs[0] is not None:
            return (*inputs[0], static[-1])
        canonical = _canonical(name)
        group = family(canonical)
        if (
            (group in _BROADCAST or name in ("full_like", "assign"))
            and canonical not in _NOT_BROADCAST
            and len(known_sizes) == len(inputs)
        ):
            try:
                return broadcast(*known_sizes)
            except ValueError:
                return None
        if group in _SAME and inputs[0] is not None and static == self._values[tensors[0]].sizes:
            return inputs[0]
        if group in ("conv", "pooling") and inputs[0] is not None:
            return (inputs[0][0], *static[1:])
        if canonical in _ALONG or name in _ALONG_NAMES:
            return self._along(operator, static)
        return None

    def _along(self, operator: ProgramOperator, static: Sizes) -> Sequence[int] | None:
        """Return the shape of a result with one open size, if all inputs have at most one, and the same."""
        axes = self._axes(operator)
        open_sizes = set()
        for tensor in flat(operator.inputs):
            declared, sizes = self._values[tensor].sizes, self.sizes[tensor]
            if OPEN not in declared:
                continue
            open_axis = declared.index(OPEN)
            if sizes is None or declared.count(OPEN) > 1 or open_axis in {axis % len(declared) for axis in axes}:
                return None
            open_sizes.add(sizes[open_axis])
        if len(open_sizes) != 1 or static.count(OPEN) != 1:
            return None
        (open_size,) = open_sizes
        return [open_size if size == OPEN else size for size in static]

    def _axes(self, operator: ProgramOperator) -> Sequence[int]:
        """Return the dimensions along which an operator joins or divides tensors."""
        if operator.name in ("concat", "split", "split_with_num"):
            return self._constant(operator, -1) or ()
        axes: Sequence[int] = operator.attributes.get("axes", ())
        return axes

    def _constant(self, operator: ProgramOperator, position: int) -> tuple[int, ...] | None:
        tensor = operator.inputs[position] if -len(operator.inputs) <= position < len(operator.inputs) else None
        parts = [self.constants[item] for item in flat((tensor,))]
        if not parts or None in parts:
            return None
        return tuple(int(number) for part in parts for number in (part if isinstance(part, tuple) else (part,)))

    def _calculate(self, operator: ProgramOperator) -> None:
        """Calculate with shapes: programs read a shape, take sizes out of it and join them to another shape."""
        result = operator.results[0] if operator.results else None
        if not isinstance(result, int) or self.constants[result] is not None:
            return
        if operator.name in ("shape", "shape64"):
            self.constants[result] = self.sizes[next(flat(operator.inputs))]
        elif operator.name in ("stack", "concat"):
            self.constants[result] = self._constant(operator, 0)
        elif operator.name == "slice":
            numbers, starts, ends = (self._constant(operator, position) for position in range(3))
            if numbers is not None and starts is not None and ends is not None and len(starts) == 1:
                self.constants[result] = numbers[starts[0] : ends[0]]


@functools.lru_cache(maxsize=4096)
def _canonical(name: str) -> str:
    return operator_name(NAMESPACE + name) or ""


def _permuted(sizes: Sizes | None, order: Sequence[int], back: bool) -> Sequence[int] | None:
    if sizes is None:
        return None
    return [sizes[order.index(axis) if back else order[axis]] for axis in range(len(sizes))]


def _reshaped(sizes: Sizes | None, target: Sequence[int] | None) -> Sequence[int] | None:
    """Return ``target`` with its open size, which follows from the number of elements."""
    if sizes is None or target is None or target.count(OPEN) > 1 or 0 in target:
        return None
    rest = math.prod(size for size in target if size != OPEN)
    count, remainder = divmod(math.prod(sizes), rest)
    return None if remainder else [count if size == OPEN else size for size in target]


def _reduced(sizes: Sizes, axes: Sequence[int] | None, keep: bool) -> Sequence[int] | None:
    if axes is None:
        return None
    reduced = {axis % len(sizes) for axis in axes} or {*range(len(sizes))}
    return [1 if axis in reduced else size for axis, size in enumerate(sizes) if keep or axis not in reduced]


def _multiplied(a: Sizes, b: Sizes, transpose_a: bool, transpose_b: bool) -> Sequence[int] | None:
    if len(a) < 2 or len(b) < 2:
        return None
    rows, columns = a[-1 if transpose_a else -2], b[-2 if transpose_b else -1]
    return (*broadcast(a[:-2], b[:-2]), rows, columns)
