"""Rule 23, tf32-off: matrix products in single precision run on vector units of a device that supports TF32.
Detected: kernels whose names show such products, if no product uses TF32.
Predicted: the step time if these products use TF32."""

from __future__ import annotations

from typing import Final

from perfkit_core.advice.matrix_products import HALF, PLAIN, SINGLE, by_peaks, cores_and_kernels, slow_products
from perfkit_core.advice.rule_input import Candidate, RuleInput
from perfkit_core.base.language.messages import message
from perfkit_core.plugins.flops.peaks import TF32
from perfkit_core.replay.transforms import Quantity

_TF32_FACTOR: Final = Quantity(
    0.3,
    0.7,
    1.0,
    message("estimate: tensor cores compute half as fast in TF32 as in 16 bits; no gain on GeForce 30 (PyTorch notes)"),
)


def find(facts: RuleInput) -> list[Candidate]:
    device, kernels = cores_and_kernels(facts)
    products = ~kernels.convolves & (kernels.type != HALF)
    if not device.tf32 or (products & kernels.tf32).any():
        return []
    return slow_products(
        facts, device, kernels.row[products & (kernels.unit == PLAIN) & (kernels.type == SINGLE)],
        by_peaks(facts.trace.meta.devices, _TF32_FACTOR, "float32", TF32),
        message("in full single precision, and no product uses TF32"),
        message("Products keep 10 bits of mantissa instead of 23."),
        "tensor-cores-unused",
    )  # fmt: skip
