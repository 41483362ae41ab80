"""How much work does a step do: samples, tokens, floating point operations? As given, as recorded, as shapes tell."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final

import numpy as np

from perfkit_core import nesting
from perfkit_core.analyses.step.step_rows import step_rows
from perfkit_core.schema import BACKWARD, DATALOADER, NO_ROW, OPTIMIZER
from perfkit_core.trace import Trace

SAMPLE: Final = "sample"
TOKEN: Final = "token"
FLOP: Final = "flop"
RECORDED: Final[Mapping[str, tuple[str, ...]]] = {
    SAMPLE: ("samples_per_step", "num_samples", "batch_size", "global_batch_size"),
    TOKEN: ("tokens_per_step", "num_tokens"),
}
"""Metadata of a recording that tells it, such as ``profiler.add_metadata_json("batch_size", "64")`` of torch."""
_BATCH_FIRST: Final = ("conv", "conv_transpose", "batch_norm", "group_norm", "layer_norm", "pool")
"""Operators whose first input begins with the batch, unless a model folds another axis into it."""
_AGREE: Final = 0.5
"""Share of them that must have the same batch."""


@dataclass(frozen=True, slots=True)
class Work:
    """``amount`` of ``unit`` in a step, and where that is known from: "given", "recorded" or "shapes"."""

    unit: str
    amount: Fraction
    origin: str


def work(trace: Trace, unit: str, given: int | None = None) -> Work | None:
    """The work of a step, None where nothing tells."""
    if given is not None:
        return Work(unit, Fraction(given), "given")
    if unit == FLOP:
        return _flops(trace)
    for key in RECORDED[unit]:
        amount = _number(trace.meta.extra.get(key))
        if amount is not None:
            return Work(unit, amount, "recorded")
    batch = batch_of_shapes(trace) if unit == SAMPLE else None
    return None if batch is None else Work(unit, Fraction(batch), "shapes")


def batch_of_shapes(trace: Trace) -> int | None:
    """Samples of a step, as most operators have them that begin with the batch; None where that cannot be told.

    Only of runs with steps: what a rank computes at a time, without the other ranks, and of one forward pass."""
    rows = trace.operators & trace.rows("op_name", *_BATCH_FIRST)
    rows &= ~trace.rows("phase", BACKWARD, OPTIMIZER, DATALOADER) & (trace.ints("step") >= 0)
    shapes = trace.codes("shapes")
    codes, calls = np.unique(shapes.codes[rows], return_counts=True)
    found: Counter[int] = Counter()
    for code, count in zip(codes.tolist(), calls.tolist(), strict=True):
        size = _leading(shapes.values[code]) if code >= 0 else None
        if size:
            found[size] += count
    ((most, times),) = found.most_common(1) or [(0, 0)]
    return most if times > _AGREE * sum(found.values()) else None


def _leading(shapes: str) -> int | None:
    """The first axis of the first tensor that has several."""
    try:
        listed = json.loads(shapes)
    except ValueError:
        return None
    for one in _tensors(listed):
        if len(one) > 1 and all(isinstance(size, int) for size in one):
            return int(one[0])
    return None


def _tensors(listed: Any) -> Sequence[Sequence[Any]]:
    """Shapes in the order of the arguments, whether listed, named, or in lists of lists."""
    if isinstance(listed, dict):
        return [shape for value in listed.values() for shape in _tensors(value)]
    if not isinstance(listed, list) or not listed:
        return []
    return [listed] if all(isinstance(one, int) for one in listed) else [s for one in listed for s in _tensors(one)]


def _flops(trace: Trace) -> Work | None:
    """Operations of the outermost operators that were counted, in steps, by their number."""
    steps = len(np.unique(trace.ints("step")[step_rows(trace)]))
    counted = trace.host & (trace.ints("flops") > 0) & (trace.ints("step") >= 0)
    if not steps or not counted.any():
        return None
    above = nesting.nearest_above(trace.ints("parent"), counted)
    total = int(trace.ints("flops")[counted & (above == NO_ROW)].sum())
    return Work(FLOP, Fraction(total, steps), "recorded")


def _number(value: object) -> Fraction | None:
    try:
        amount = Fraction(str(value).strip().strip('"'))
    except ValueError:
        return None
    return amount if amount > 0 else None
