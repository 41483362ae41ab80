"""FLOPs and bytes of one operator call, and helpers for formulas."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from perfkit_core.plugins.flops.arguments import Argument, Tensor


class Product(NamedTuple):
    """``batch`` products of an m × k matrix with a k × n matrix."""

    batch: int
    m: int
    n: int
    k: int


@dataclass(frozen=True, slots=True)
class Work:
    """FLOPs and bytes of one operator call.

    - ``bytes``: the sizes of all inputs and results, or None if a type is unknown.
    - ``matrix``: whether the FLOPs are those of matrix products, which matrix units can compute.
    - ``dtype``: the data type of the inputs, or None if unknown.
    - ``recomputed``: the part of ``flops`` that repeats work of the forward pass to save memory."""

    flops: int
    bytes: int | None = None
    matrix: bool = False
    dtype: str | None = None
    product: Product | None = None
    recomputed: int = 0


def moved(tensors: Iterable[Tensor | None]) -> int | None:
    """Return the bytes of all tensors, or None if the type of one is unknown."""
    sizes = [tensor.bytes for tensor in tensors if tensor is not None]
    return None if None in sizes else sum(size for size in sizes if size is not None)


def flat(*arguments: Argument) -> tuple[Tensor, ...]:
    """Return the tensors in the arguments, including those in (nested) tuples. Values are left out."""
    tensors: list[Tensor] = []
    for arg in arguments:
        tensors += flat(*arg) if isinstance(arg, tuple) else [arg] if isinstance(arg, Tensor) else []
    return tuple(tensors)


def broadcast(*shapes: Sequence[int]) -> tuple[int, ...]:
    """Return the shape of the elementwise combination of tensors of these shapes. Raises ValueError."""
    result: list[int] = []
    for axis in range(max(map(len, shapes), default=0)):
        sizes = {shape[-1 - axis] for shape in shapes if axis < len(shape)} - {1}
        if len(sizes) > 1:
            raise ValueError(f"shapes do not fit: {shapes}")
        result.insert(0, next(iter(sizes), 1))
    return tuple(result)
