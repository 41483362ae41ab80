"""Formulas of operators, and the FLOPs and bytes of a recorded call.

An adapter says which roles the recorded arguments of an operator have, in a text such as ``matmul(bias, a, b)``. The
name is the name of a formula in :mod:`perfkit_core.plugins.flops.matrix` or :mod:`perfkit_core.plugins.flops.vector`.
Operators without such a text, whose canonical name belongs to an elementwise family, have the formula
``elementwise``."""

import functools
import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from perfkit_core.base.operators.names import GRADIENT_SUFFIX, family
from perfkit_core.base.system.outside_text import convert, read_toml, whole_number
from perfkit_core.plugins.flops import matrix, vector
from perfkit_core.plugins.flops.arguments import Argument, Work, arguments

FORMULAS: Final[Mapping[str, Callable[..., Work]]] = {
    function.__name__: function
    for function in (
        matrix.matmul, matrix.summed_matmul, matrix.matmul_gradient, matrix.matmul_of_unknown_layout, matrix.linear,
        matrix.bilinear, matrix.grouped_matmul, matrix.convolution, matrix.convolution_gradient,
        matrix.sized_convolution, matrix.attention, matrix.attention_gradient, matrix.packed_attention,
        matrix.packed_attention_gradient, matrix.recurrent, matrix.recurrent_gradient, vector.elementwise, vector.lists,
        vector.gated, vector.gated_gradient, vector.sized_elementwise, vector.dropout, vector.copy, vector.fill,
        vector.concatenate, vector.reduce, vector.scan, vector.softmax, vector.softmax_gradient, vector.normalize,
        vector.normalize_gradient, vector.pool, vector.adaptive_pool, vector.sized_pool, vector.pool_gradient,
        vector.gather, vector.gather_sum, vector.scatter, vector.loss, vector.picked_loss, vector.picked_loss_gradient,
        vector.optimizer,
    )
}  # fmt: skip
"""Name of a formula → function that returns the work of a call."""

_TEXT: Final = re.compile(r"(\w+)\((.*)\)")
_CONSTANT: Final = re.compile(r"(\w+)=(\w+)")
UNUSED: Final = "_"
_LARGEST: Final = 2**62
"""FLOPs and bytes of a call are from 0 to below this number, so that they fit 64 bits. Others are errors."""
_ELEMENTWISE: Final = ("elementwise", "activation")
"""Families whose operators have the formula ``elementwise``."""
_NO_WORK: Final = frozenset(("complex", "distance", "fused_elementwise"))
"""Operators of these families that only reinterpret data, or that are not elementwise."""
_BOOLEAN: Final = frozenset(("compare", "logical"))
_VALUES: Final = frozenset(
    ("stride", "padding", "dilation", "transposed", "output_padding", "groups", "wanted", "causal", "query_length",
     "key_length", "trained", "inference", "dims", "window", "ceil", "size", "dim", "rows", "sizes", "transpose_a",
     "transpose_b", "adaptive", "bidirectional", "mask", "reduction", "with_end")
)  # fmt: skip
"""Roles of arguments that are values. If an operator has none, its work follows from shapes and types alone."""


@dataclass(frozen=True, slots=True)
class OperatorFormula:
    """The formula of an operator. ``roles`` names the formula's argument for each recorded argument, by position."""

    name: str
    roles: tuple[str, ...] = ()
    constants: Mapping[str, Any] = field(default_factory=dict, hash=False)

    @property
    def needs_values(self) -> bool:
        return not _VALUES.isdisjoint(self.roles)

    def work(self, shapes: str, dtypes: str | None, values: str | None) -> Work | None:
        """Return the work of a call, or None if the recorded arguments do not determine it.

        The texts are those of :func:`perfkit_core.plugins.flops.arguments.arguments`."""
        try:
            work = FORMULAS[self.name](**self._roles(arguments(shapes, dtypes, values)), **self.constants)
        except (ValueError, TypeError, AttributeError, IndexError, ArithmeticError):
            return None  # the arguments of a foreign version of the operator, or an incomplete recording
        numbers = (work.flops, work.bytes or 0)
        return work if min(numbers) >= 0 and max(numbers) < _LARGEST else None

    def _roles(self, values: tuple[Argument, ...]) -> dict[str, Any]:
        if not self.roles:
            return {"inputs": values}
        roles: dict[str, Any] = {}
        for role, argument in zip(self.roles, values, strict=False):
            if role != UNUSED and argument is not None:
                roles[role] = (roles[role], argument) if role in roles else argument
        return roles


WRAPPER: Final = OperatorFormula("")
"""Stands for the formula of an operator that only calls others. Its FLOPs are those of the operators inside."""


def parse(text: str) -> OperatorFormula:
    """Return the formula that a text such as ``matmul(bias, a, b)`` describes. Raises ValueError."""
    match = _TEXT.fullmatch(text)
    formula = FORMULAS.get(match[1]) if match else None
    if match is None or formula is None:
        raise ValueError(f"not a formula: {text!r}")
    parts = [part.strip() for part in match[2].split(",") if part.strip()]
    texts = {constant[1]: constant[2] for part in parts if (constant := _CONSTANT.fullmatch(part))}
    constants = {name: whole_number(text) if text.isdecimal() else text for name, text in texts.items()}
    roles = tuple(part for part in parts if not _CONSTANT.fullmatch(part))
    unknown = {*roles, *constants} - {UNUSED, *inspect.signature(formula).parameters}
    if unknown:
        raise ValueError(f"{text!r}: the formula has no argument {min(unknown)!r}")
    return OperatorFormula(match[1], roles, constants)


@functools.cache
def read_formulas(package: str) -> Mapping[str, OperatorFormula]:
    """Return the formulas in ``operator_formulas.toml`` of an adapter's package: name of an operator → formula. Raises
    ValueError if the file has wrong fields or lists an operator twice."""
    where = f"{package}/operator_formulas.toml"
    table = convert(read_toml(package, "operator_formulas.toml"), dict[str, dict[str, tuple[str, ...]]], where)
    formulas: dict[str, OperatorFormula] = {}
    for text, operators in table.get("formulas", {}).items():
        formula = parse(text)
        for operator in operators:
            if operator in formulas:
                raise ValueError(f"{where}: {operator} is listed twice")
            formulas[operator] = formula
    return formulas


@functools.lru_cache(maxsize=4096)
def by_canonical_name(op_name: str | None) -> OperatorFormula | None:
    """Return the formula of an operator that has none of its own: ``elementwise`` for elementwise families."""
    bare = (op_name or "").removesuffix(GRADIENT_SUFFIX)
    if family(bare) not in _ELEMENTWISE or bare in _NO_WORK:
        return None
    return OperatorFormula("elementwise", (), {"result": "bool"} if bare in _BOOLEAN else {})
