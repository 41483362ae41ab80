"""What does updating all parameters at once cost, compared with one after the other?

Measured with a profiler's recording of whole optimizer steps, one thread, medians of interleaved runs, tensors of 64 to
1,000,000 elements. What a loop costs per tensor is what its operators cost, so the classes are how many operators a
tensor takes and how long one of them takes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from perfkit_core.language import in_english
from perfkit_core.replay.quantity import Quantity

SMALL_NS: Final = 10_000
"""An operator that takes less is mostly the cost of calling it."""
_CPU: Final = in_english("measured on CPU, torch 2.13: fused against a loop, the whole optimizer step")
_FEW_SMALL: Final = Quantity(0.20, 0.27, 0.45, _CPU)
_FEW_LARGE: Final = Quantity(0.69, 0.73, 0.80, _CPU)
_MANY_SMALL: Final = Quantity(0.10, 0.22, 0.44, _CPU)
_MANY_LARGE: Final = Quantity(0.13, 0.30, 0.43, _CPU)
_ONE_SMALL: Final = Quantity(0.38, 0.50, 0.79, _CPU)
_FOREACH: Final = Quantity(
    0.66, 0.80, 1.1, in_english("measured on CPU, torch 2.13: RMSprop and Adagrad, foreach against a loop")
)
_MERGED: Final = Quantity(
    0.50, 0.58, 0.72, in_english("measured on CPU, paddle 3.3: Adam, use_multi_tensor against a loop")
)
HOST: Final = Quantity(
    0.03, 0.1, 0.3, in_english("prior: one launch for 30 to 100 tensors in place of some for each tensor")
)
KERNELS_SMALL: Final = Quantity(
    0.03, 0.1, 0.3, in_english("prior: kernels of few µs take that for 30 to 100 tensors together")
)
KERNELS_LARGE: Final = Quantity(0.35, 0.6, 1.0, in_english("prior: bound by memory; fused, each tensor is read once"))
_FUSED: Final = re.compile(r"(?<![a-z])(adamw?|sgd|adagrad)(?![a-z])", re.IGNORECASE)
_ADAM: Final = re.compile(r"(?<![a-z])adam_?(?![a-z])", re.IGNORECASE)
_MANY: Final = 6


@dataclass(frozen=True, slots=True)
class Loop:
    """A loop over tensors: the name of the optimizer or its operator, ``operators`` for each of the ``tensors``,
    ``operator_ns`` the time of one with what passes around it. ``whole``: one operator does the whole update."""

    name: str
    tensors: float
    operators: float
    operator_ns: float
    whole: bool


def on_host(loop: Loop) -> Quantity | None:
    """Factor of the time of an optimizer step on a CPU, None where nothing is gained."""
    if loop.whole:
        return _MERGED if _ADAM.search(loop.name) else None
    small = loop.operator_ns < SMALL_NS
    if not _FUSED.search(loop.name):
        return _FOREACH if small else None
    if loop.operators >= _MANY:
        return _MANY_SMALL if small else _MANY_LARGE
    if loop.operators > 1:
        return _FEW_SMALL if small else _FEW_LARGE
    return _ONE_SMALL if small else None


def of_kernels(kernel_ns: float) -> Quantity:
    """Factor of the time of the kernels of an optimizer step whose typical kernel takes so long."""
    return KERNELS_SMALL if kernel_ns < SMALL_NS else KERNELS_LARGE
