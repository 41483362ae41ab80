"""Mapping of Paddle's operator names to canonical names. Rules strip the spelling of an operator; the table
``operator_names.toml`` maps the rest. The same operator appears as ``conv2d dygraph`` (eager), ``pd_op.conv2d`` (PIR),
``conv2d`` (old static graph); its gradient as ``Global_Conv2dGradNodeFinal`` (3.x), ``Conv2dGradNodeFinal`` (2.6),
``pd_op.conv2d_grad`` or ``conv2d_grad``; on sparse tensors as ``sparse_conv2d`` or ``conv2d_coo``."""

from __future__ import annotations

import functools
import re
from typing import Final

from perfkit_core.operators.names import CANONICAL, GRADIENT_SUFFIX, native_names

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
    """Return the canonical operator of a native name, ``NAME_grad`` for a gradient; None if unknown."""
    if _ACCUMULATION.fullmatch(native):
        return "accumulate_grad"
    if _OF_THE_USER.fullmatch(native):
        return "custom_function" + GRADIENT_SUFFIX
    node, call = _GRAD_NODE.fullmatch(native), _COMMUNICATOR.fullmatch(native)
    camel = node or call
    name = _WORD.sub("_", camel[1]).lower() if camel else _bare(native)
    stem = _GRADIENT.sub("", name).rstrip("_")
    canonical = _canonical(stem)
    if canonical is None:
        return None
    return canonical + GRADIENT_SUFFIX if node or stem != name.rstrip("_") else canonical


def _bare(native: str) -> str:
    names = _names().names
    name = _SUFFIX.sub("", native)
    for prefix in _PREFIXES:
        name = name if name in names else name.removeprefix(prefix)
    return name.rstrip("_")


def _canonical(name: str) -> str | None:
    names = _names().names
    kind = _KIND.sub("", name)
    for each in (name, kind, _KIND.sub("", kind), _STORAGE.sub("", name), _STORAGE.sub("", kind)):
        canonical = names.get(each) or (each if each in CANONICAL else None)
        if canonical:
            return canonical
    return None
