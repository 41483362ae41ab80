"""Rules 22 and 23: matrices are multiplied on ordinary cores although the device has tensor cores."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np

from perfkit_core.advice.facts import Facts
from perfkit_core.advice.model import Assumption, Candidate, NotEvaluableError
from perfkit_core.advice.rules import kernel_words
from perfkit_core.advice.rules.device_time import covered_ns
from perfkit_core.advice.rules.kernel_words import Multiplying, multiplying
from perfkit_core.advice.rules.matrix_units import Units, units
from perfkit_core.advice.rules.phrases import part_of_step
from perfkit_core.language import in_english, say
from perfkit_core.plugins.contracts import Rule
from perfkit_core.replay.edits.durations import Scale
from perfkit_core.replay.quantity import Quantity
from perfkit_core.trace import BoolArray, IntArray

MIXED: Final = Quantity(
    1 / 3,
    1 / 2,
    0.9,
    in_english("prior: 2 to 3 times as fast for large products; small ones are bound by memory, casts are added"),
)
"""Factor of single precision kernels once mixed precision runs them on tensor cores."""
ON_TENSOR_CORES: Final = Quantity(
    1 / 3, 1 / 2, 1.0, in_english("prior: 2 to 3 times as fast where nothing else bounds the kernel")
)
"""Factor of half precision kernels once tensor cores run them."""
TF32: Final = Quantity(
    0.15,
    0.5,
    1.0,
    in_english("PyTorch, CUDA semantics: 0.11 s → 0.016 s for 10240 × 10240 on GA100; no gain on GeForce 30"),
)
"""Factor of single precision products with TF32."""


def unused(facts: Facts) -> list[Candidate]:
    """Rule 22: kernels of half precision, or of single precision that mixed precision would replace, whose names tell
    that they run on ordinary cores."""
    device, found = _asked(facts)
    if not device.half:
        return []
    plain = found.unit == kernel_words.PLAIN
    half = _rows(facts, found, plain & (found.type == kernel_words.HALF))
    single = _rows(facts, found, plain & (found.type == kernel_words.SINGLE))
    return [
        *([_half(facts, device, half)] if len(half) else []),
        *([_single(facts, device, single)] if len(single) else []),
    ]


def tf32_off(facts: Facts) -> list[Candidate]:
    """Rule 23: products of single precision on ordinary cores of a device that has TF32, and none with TF32."""
    device, found = _asked(facts)
    products = ~found.convolves & (found.type != kernel_words.HALF)
    if not device.tf32 or (products & found.tf32).any():
        return []
    plain = products & (found.unit == kernel_words.PLAIN) & (found.type == kernel_words.SINGLE)
    rows = _rows(facts, found, plain)
    return [_tf32(facts, device, rows)] if len(rows) else []


def _asked(facts: Facts) -> tuple[Units, Multiplying]:
    facts.need_device()
    device, found = units(facts), multiplying(facts.trace)
    if not len(found.row):
        raise NotEvaluableError(say("no kernel was recorded whose name tells that it multiplies matrices"))
    if not (found.unit != kernel_words.UNKNOWN).any():
        raise NotEvaluableError(say("the names of the kernels do not tell whether they use tensor cores"))
    return device, found


def _rows(facts: Facts, found: Multiplying, chosen: BoolArray) -> IntArray:
    """The chosen kernels, none where they take too little of a step."""
    rows = found.row[chosen]
    enough = covered_ns(facts, rows) > facts.thresholds.multiply_share * facts.step_ns
    return rows if enough else rows[:0]


def _single(facts: Facts, device: Units, rows: IntArray) -> Candidate:
    return _candidate(
        facts, device, rows, MIXED,
        say("in single precision on ordinary cores; mixed precision would use tensor cores"),
        (say("results are rounded to 16 bits: check the loss; float16 needs loss scaling"),),
        ("tf32-off",),
    )  # fmt: skip


def _half(facts: Facts, device: Units, rows: IntArray) -> Candidate:
    found = _candidate(
        facts, device, rows, ON_TENSOR_CORES,
        say("in half precision, yet on ordinary cores: sizes or layout keep tensor cores from being used"),
        (say("padding needs memory"),),
        ("unaligned-matmul",),
    )  # fmt: skip
    return replace(found, words={"numbers": "half"})


def _tf32(facts: Facts, device: Units, rows: IntArray) -> Candidate:
    return _candidate(
        facts, device, rows, TF32,
        say("in full single precision, and none with TF32"),
        (say("products keep 10 bits of mantissa instead of 23"),),
        ("tensor-cores-unused",),
    )  # fmt: skip


def _candidate(
    facts: Facts, device: Units, rows: IntArray, factor: Quantity, how: str, risks: tuple[str, ...],
    conflicts: tuple[str, ...],
) -> Candidate:  # fmt: skip
    taken = covered_ns(facts, rows)
    return Candidate(
        say("kernels multiply matrices for {part} {how}", part=part_of_step(facts, taken), how=how),
        evidence={
            "kernel_ns": round(taken), "kernel_ratio": taken / max(facts.step_ns, 1), "step_ns": facts.step_ns,
            "kernels": len(rows), "names": _names(facts, rows), "device": device.name,
        },
        rows=rows,
        edits=(Scale(rows, factor, below=False, host=False),),
        ceiling_ns=round(taken),
        preconditions=(
            say("{name} has tensor cores for these numbers", name=device.name),
            say("names of kernels tell their instruction"),
        ),
        assumptions=(Assumption("kernel_factor", factor, factor.source),),
        risks=risks,
        conflicts=conflicts,
    )  # fmt: skip


def _names(facts: Facts, rows: IntArray, most: int = 3) -> list[str]:
    """The kernels that take most, the longest together first."""
    names = facts.trace.codes("name")
    total = np.bincount(names.codes[rows], facts.trace.ints("dur_ns")[rows], len(names.values))
    return [names.values[code][:90] for code in np.argsort(-total, kind="stable")[:most] if total[code]]


RULES: Final = (
    Rule("tensor-cores-unused", 22, 1, "Use tensor cores", unused),
    Rule("tf32-off", 23, 1, "Allow TF32 for products of single precision", tf32_off),
)
