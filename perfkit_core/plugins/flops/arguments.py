"""Recorded arguments of operators (tensors with shape and type, lists of tensors, and values such as a stride), and the
FLOPs and bytes of an operator call."""

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Annotated, Any, Final, NamedTuple

import msgspec

SIZES: Final = {
    "float64": 8, "float32": 4, "float16": 2, "bfloat16": 2, "float8": 1, "complex128": 16, "complex64": 8,
    "complex32": 4, "int64": 8, "int32": 4, "int16": 2, "int8": 1, "uint64": 8, "uint32": 4, "uint16": 2, "uint8": 1,
    "bool": 1,
}  # fmt: skip
"""Data type → bytes of an element."""
_SPELLINGS: Final = {
    "double": "float64", "float": "float32", "half": "float16", "long int": "int64", "long": "int64",
    "long long": "int64", "int": "int32", "short int": "int16", "short": "int16", "signed char": "int8",
    "char": "int8", "unsigned char": "uint8", "byte": "uint8", "unsigned short": "uint16", "unsigned int": "uint32",
    "unsigned long": "uint64", "complex<double>": "complex128", "complex<float>": "complex64",
    "complex<half>": "complex32", "qint8": "int8", "quint8": "uint8", "qint32": "int32",
}  # fmt: skip
"""Names of data types in C++ → data type."""
_NAMESPACE: Final = re.compile(r"\b\w+::")
_FLOAT8: Final = re.compile(r"float8_e\dm\d\w*")


def number_type(recorded: str) -> str | None:
    """Return the data type that a recorded name denotes: ``float32`` for ``float``, ``bfloat16`` for
    ``c10::BFloat16``. Return None if the name denotes no data type, for example ``Scalar``."""
    name = _NAMESPACE.sub("", recorded).strip().lower()
    if name in SIZES:
        return name
    return "float8" if _FLOAT8.fullmatch(name) else _SPELLINGS.get(name)


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor argument. ``dtype`` is a key of :data:`SIZES`, or None if unknown."""

    shape: tuple[int, ...]
    dtype: str | None = None

    @property
    def elements(self) -> int:
        return math.prod(self.shape)

    @property
    def bytes(self) -> int | None:
        return None if self.dtype is None else self.elements * SIZES[self.dtype]


_Size = Annotated[int, msgspec.Meta(ge=0)]
Argument = Any
"""A :class:`Tensor`, a tuple of tensors, or a value: bool, int, float, or a tuple of these. None if not given."""


def arguments(shapes: str, dtypes: str | None, values: str | None) -> tuple[Argument, ...]:
    """Return the arguments of a call, by position. The texts are JSON lists with one item per argument: ``shapes`` has
    sizes, ``dtypes`` has names of types, and ``values`` has values as text, or "". ``values`` may have more items:
    arguments that are not tensors. Raises ValueError."""
    try:
        sizes = msgspec.json.decode(shapes, type=list[list[_Size | list[_Size]]])
        names = msgspec.json.decode(dtypes, type=list[str]) if dtypes else []
        texts = msgspec.json.decode(values, type=list[str]) if values else []
    except msgspec.DecodeError as error:
        raise ValueError(f"not a JSON list of arguments: {error}") from None
    return tuple(_argument(size or [], name or "", text or "") for size, name, text in zip_longest(sizes, names, texts))


def _argument(size: list[Any], name: str, text: str) -> Argument:
    dtype = number_type(name)
    if size and isinstance(size[0], list):
        return tuple(Tensor(tuple(shape), dtype) for shape in size if isinstance(shape, list))
    if not size and (text or dtype is None):
        return _value(text)
    return Tensor(tuple(size), dtype)


def _value(text: str) -> Any:
    """Return the value of a text: ``[1, 1]`` gives (1, 1), ``True`` gives True, and "" gives None."""
    text = text.strip()
    if text.startswith("["):
        return tuple(_value(item) for item in text.strip("[]").split(",") if item.strip())
    if text in ("True", "False"):
        return text == "True"
    for number in (int, float):
        try:
            return number(text)
        except ValueError:
            pass
    return text or None


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
