"""Mapping of Paddle's operator names to canonical names and to formulas of their FLOPs and bytes. Rules remove
prefixes and suffixes from a name, and the table ``operator_names.toml`` maps the remaining name. The formulas are in
``operator_formulas.toml``.

Paddle has many names for one operator. These are names of a convolution:

- eager mode: ``conv2d dygraph``
- PIR program: ``pd_op.conv2d``
- old static graph: ``conv2d``
- sparse tensors: ``sparse_conv2d``, ``conv2d_coo``
- gradient: ``Global_Conv2dGradNodeFinal`` (3.x), ``Conv2dGradNodeFinal`` (2.6), ``pd_op.conv2d_grad``, ``conv2d_grad``
"""

from __future__ import annotations

import functools
import re
from typing import Final

from perfkit_core.base.operators.names import CANONICAL, GRADIENT_SUFFIX, joined_operators, native_names
from perfkit_core.plugins.flops.registry import OperatorFormula, read_formulas

_GRAD_NODE: Final = re.compile(r"(?:Global_|Local_)?(\w+?)GradNode(?:Final)?")
_ACCUMULATION: Final = re.compile(r"(?:Global_|Local_)?GradNodeAccumulation")
_OF_THE_USER: Final = re.compile(r"(?:Global_|Local_)?GradNodePyLayer_\w+")
_COMMUNICATOR: Final = re.compile(r"(?:nccl|rccl|xccl|hccl|bkcl|flagcx)([A-Z]\w+)")
_SUFFIX: Final = re.compile(r"(?: dygraph| kernel launch| compute|_instruction|_(?:dense|sparse)_param_sparse_grad)$")
_PREFIXES: Final = ("pd_op.", "cinn_op.", "onednn_op.", "pd_kernel.", "custom_op.", "c_")
_WORD: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_GRADIENT: Final = re.compile(r"(?:_double|_triple|_grad)?_grad(?:_grad|2|_sr)?$")
_KIND: Final = re.compile(
    r"(?:(?:_(?:coo|csr|sr|raw|xpu|dense|infer|with_xshape|inplace|strided|array|v2|v1|extended|vocab))+"
    r"|_deprecated(?:_infer|_train)?|_with_tensor)$"
)
_STORAGE: Final = re.compile(r"^(?:sparse_|fused_|fusion_|partial_|global_|strings_)")

_names: Final = functools.partial(native_names, "perfkit_paddle")


@functools.lru_cache(maxsize=65536)
def operator_name(native: str) -> str | None:
    """Return the canonical name of a Paddle operator, or None if it is unknown. A gradient's name ends with "_grad"."""
    if _ACCUMULATION.fullmatch(native):
        return "accumulate_grad"
    if _OF_THE_USER.fullmatch(native):
        return "custom_function" + GRADIENT_SUFFIX
    names = _names().names
    node = _GRAD_NODE.fullmatch(native)
    camel = node or _COMMUNICATOR.fullmatch(native)
    if camel:
        name = _WORD.sub("_", camel[1]).lower()
    else:
        name = _SUFFIX.sub("", native)
        for prefix in _PREFIXES:
            name = name if name in names else name.removeprefix(prefix)
        name = name.rstrip("_")
    stem = _GRADIENT.sub("", name).rstrip("_")
    gradient = GRADIENT_SUFFIX if node or stem != name.rstrip("_") else ""
    plain = _KIND.sub("", stem)
    for candidate in (stem, plain, _KIND.sub("", plain), _STORAGE.sub("", stem), _STORAGE.sub("", plain)):
        canonical = names.get(candidate) or (candidate if candidate in CANONICAL else None)
        if canonical:
            return canonical + gradient
    return None


_CINN_KERNEL: Final = re.compile(r"fn_(\w+?)(?:_yield(?:_store)?)?_*(?:_COND_\w*)?(?:_infer_shape)?(?:_kernel\w*)?$")
_CINN_NUMBER: Final = re.compile(r"_\d+(?=_|$)")
_CINN_SHORT: Final = {"bc": "broadcast_to", "mul": "multiply"}
"""Abbreviations in the names."""
_CINN_HELPERS: Final = frozenset({"generate_shape", "yield", "yield_store", "store"})
"""Operators of CINN's programs that compute nothing."""


@functools.lru_cache(maxsize=65536)
def fused_operators(kernel: str) -> tuple[str, ...]:
    """Return the operators in the name of a kernel of Paddle's compiler CINN, each once, () for other kernels.

    A name such as ``fn_broadcast_to_broadcast_to_elementwise_add_yield_store_kernel`` lists the operators of the group
    in the order of the program. Older versions add the number of each operator."""
    match = _CINN_KERNEL.match(kernel)
    if match is None:
        return ()
    helpers = _CINN_SHORT.keys() | _CINN_HELPERS
    parts = joined_operators(_CINN_NUMBER.sub("", match[1]), lambda name: name in helpers or bool(operator_name(name)))
    if not any(is_known for _, is_known in parts):
        return ()
    return tuple(dict.fromkeys(_CINN_SHORT.get(name, name) for name, _ in parts if name not in _CINN_HELPERS))


NAMESPACE: Final = "pd_op."
"""Namespace of the operators of PIR programs. An operator without a namespace belongs to an old static program."""


@functools.lru_cache(maxsize=65536)
def operator_formula(native: str) -> OperatorFormula | None:
    """Return the formula of a Paddle operator, or None if it has none of its own."""
    return read_formulas("perfkit_paddle").get(native.rstrip("_"))
