"""Operators in the names of kernels that Paddle's compiler CINN generated.

A name such as ``fn_broadcast_to_broadcast_to_elementwise_add_yield_store_kernel`` lists the operators of the group in
the order of the program. Older versions add the number of each operator. CINN writes no files about its kernels.
"""

from __future__ import annotations

import functools
import re
from typing import Final

from perfkit_core.operators import fused_names
from perfkit_paddle.operator_names import operator_name

_KERNEL: Final = re.compile(r"fn_(\w+?)(?:_yield(?:_store)?)?_*(?:_COND_\w*)?(?:_infer_shape)?(?:_kernel\w*)?$")
_NUMBER: Final = re.compile(r"_\d+(?=_|$)")
_SHORT: Final = {"bc": "broadcast_to", "mul": "multiply"}
"""Abbreviations in the names."""
_NO_OPERATORS: Final = frozenset({"generate_shape", "yield", "yield_store", "store"})
"""Operators of CINN's programs that compute nothing."""


@functools.lru_cache(maxsize=65536)
def fused_operators(kernel: str) -> tuple[str, ...]:
    """Return the names of the operators in the name of a kernel, each once, () for kernels that CINN did not make."""
    match = _KERNEL.match(kernel)
    if match is None:
        return ()
    parts = fused_names.operators(_NUMBER.sub("", match[1]), _known)
    if not any(known for _, known in parts):
        return ()
    return tuple(dict.fromkeys(_SHORT.get(name, name) for name, _ in parts if name not in _NO_OPERATORS))


def _known(name: str) -> bool:
    return name in _SHORT or name in _NO_OPERATORS or operator_name(name) is not None
