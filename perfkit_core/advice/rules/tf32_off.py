"""Rule 23, tf32-off: products of single precision run on ordinary cores of a device that has TF32. Condition: names of
kernels that multiply single precision on ordinary cores, while no product uses TF32. Transform: the kernels take the
time of TF32."""

from __future__ import annotations

from typing import Final

from perfkit_core.advice.facts import Candidate, Facts
from perfkit_core.advice.matrix_products import HALF, PLAIN, SINGLE, cores_and_kernels, slow_products
from perfkit_core.language.messages import message
from perfkit_core.replay.transforms import Quantity

_TF32: Final = Quantity(
    0.15,
    0.5,
    1.0,
    message("PyTorch, CUDA semantics: 0.11 s → 0.016 s for 10240 × 10240 on GA100; no gain on GeForce 30"),
)
"""Factor of single precision products with TF32."""


def find(facts: Facts) -> list[Candidate]:
    device, kernels = cores_and_kernels(facts)
    products = ~kernels.convolves & (kernels.type != HALF)
    if not device.tf32 or (products & kernels.tf32).any():
        return []
    return slow_products(
        facts, device, kernels.row[products & (kernels.unit == PLAIN) & (kernels.type == SINGLE)], _TF32,
        message("in full single precision, none with TF32"),
        message("Products keep 10 bits of the mantissa instead of 23."),
        "tensor-cores-unused",
    )  # fmt: skip
