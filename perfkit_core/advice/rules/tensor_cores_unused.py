"""Rule 22, tensor-cores-unused: matrices are multiplied on vector units although the device has tensor cores.
Detected: kernels whose names show products in half or single precision on vector units (CUDA cores).
Predicted: the step time if tensor cores run these kernels. Single precision needs mixed precision for this."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from perfkit_core.advice.matrix_products import HALF, PLAIN, SINGLE, by_peaks, cores_and_kernels, slow_products
from perfkit_core.advice.rule_input import Candidate, RuleInput
from perfkit_core.base.language.messages import message
from perfkit_core.replay.transforms import Quantity

_SINGLE_FACTOR: Final = Quantity(
    1 / 3,
    1 / 2,
    0.9,
    message("estimate: large products are 2 to 3 times as fast; small products less, because of casts"),
)
_HALF_FACTOR: Final = Quantity(
    1 / 3, 1 / 2, 1.0, message("estimate: 2 to 3 times as fast if nothing else limits the kernel")
)


def find(facts: RuleInput) -> list[Candidate]:
    device, kernels = cores_and_kernels(facts)
    if not device.half:
        return []
    plain = kernels.unit == PLAIN
    half = slow_products(
        facts, device, kernels.row[plain & (kernels.type == HALF)],
        by_peaks(facts.trace.meta.devices, _HALF_FACTOR, "float16", "float16"),
        message("in half precision without tensor cores, because sizes or layouts prevent their use"),
        message("Padding needs more memory."),
        "unaligned-matmul",
    )  # fmt: skip
    single = slow_products(
        facts, device, kernels.row[plain & (kernels.type == SINGLE)],
        by_peaks(facts.trace.meta.devices, _SINGLE_FACTOR, "float32", "float16"),
        message("in single precision without tensor cores; mixed precision would use them"),
        message("Results are rounded to 16 bits, so check the loss. float16 also needs loss scaling."),
        "tf32-off",
    )  # fmt: skip
    return [replace(candidate, words={"numbers": numbers})
            for numbers, candidates in (("half", half), ("single", single)) for candidate in candidates]  # fmt: skip
