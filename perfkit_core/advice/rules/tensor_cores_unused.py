"""Rule 22, tensor-cores-unused: matrices are multiplied on ordinary cores although the device has tensor cores.
Condition: names of kernels that multiply half or single precision on ordinary cores. Transform: the kernels take the
time of tensor cores, for single precision with mixed precision."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from perfkit_core.advice.facts import Candidate, Facts
from perfkit_core.advice.matrix_products import HALF, PLAIN, SINGLE, cores_and_kernels, slow_products
from perfkit_core.language.messages import message
from perfkit_core.replay.transforms import Quantity

_MIXED: Final = Quantity(
    1 / 3,
    1 / 2,
    0.9,
    message("prior: 2 to 3 times as fast for large products; small ones are bound by memory, casts are added"),
)
"""Factor of single precision kernels with mixed precision on tensor cores."""
_ON_TENSOR_CORES: Final = Quantity(
    1 / 3, 1 / 2, 1.0, message("prior: 2 to 3 times as fast where nothing else bounds the kernel")
)
"""Factor of half precision kernels on tensor cores."""


def find(facts: Facts) -> list[Candidate]:
    device, kernels = cores_and_kernels(facts)
    if not device.half:
        return []
    plain = kernels.unit == PLAIN
    half = slow_products(
        facts, device, kernels.row[plain & (kernels.type == HALF)], _ON_TENSOR_CORES,
        message("in half precision, but on ordinary cores: sizes or layout prevent the use of tensor cores"),
        message("Padding needs memory."),
        "unaligned-matmul",
    )  # fmt: skip
    single = slow_products(
        facts, device, kernels.row[plain & (kernels.type == SINGLE)], _MIXED,
        message("in single precision on ordinary cores; mixed precision would use tensor cores"),
        message("Results are rounded to 16 bits: check the loss; float16 needs loss scaling."),
        "tf32-off",
    )  # fmt: skip
    return [*(replace(candidate, words={"numbers": "half"}) for candidate in half), *single]
