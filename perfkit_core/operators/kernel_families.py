"""Of which family is a kernel, by its name?

A name is tried in this order: what is computed for each element of a template
(:mod:`perfkit_core.operators.kernel_functors`), what TorchInductor fused (:mod:`perfkit_core.operators.fused_kernels`),
and what the words in it tell (:mod:`perfkit_core.operators.kernel_rules`).
"""

from __future__ import annotations

import functools

from perfkit_core.operators.fused_kernels import fused_family
from perfkit_core.operators.kernel_functors import is_template, template_family
from perfkit_core.operators.kernel_rules import RULES


@functools.lru_cache(maxsize=65536)
def kernel_family(kernel_name: str) -> str | None:
    """The family of what a kernel computes, None where its name does not tell."""
    if is_template(kernel_name):
        return template_family(kernel_name)
    return fused_family(kernel_name) or next((family for family, words in RULES if words.search(kernel_name)), None)
