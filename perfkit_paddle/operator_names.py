"""Mapping of Paddle's operator names to canonical names. Rules remove prefixes and suffixes from a name, and the table
``operator_names.toml`` maps the remaining name.

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
