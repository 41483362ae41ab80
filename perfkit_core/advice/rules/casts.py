"""Rule 21, casts: tensors change their dtype repeatedly.
Detected: operators whose first two recorded tensors have different floating-point dtypes. If no dtypes were recorded:
operators that launch work and whose names say that they cast.
Predicted: the step time without most of these casts."""

from __future__ import annotations

import re
from typing import Final

import numpy as np

from perfkit_core.advice.operators import launched_within, matching, operators
from perfkit_core.advice.rule_input import Candidate, NotEvaluableError, RuleInput, assume
from perfkit_core.base.algorithms import arrays, nesting
from perfkit_core.base.language.messages import message, plural
from perfkit_core.replay.transforms import Quantity, Scale
from perfkit_core.trace.model.schema import DATALOADER, KERNEL, MEMCPY
from perfkit_core.trace.model.trace import Trace

_CASTS_LEFT: Final = Quantity(
    0.0, 0.25, 0.75, message("estimate: the loss and single-precision weights still need casts")
)
_CROSSING: Final = ("HtoD", "DtoH")
_FLOATING: Final = re.compile(r"(c10::)?(b?float\d*|double|Half|BFloat16|Float8_\w+)")
"""Recorded dtypes of floating-point tensors. ``Double`` with a capital denotes a scalar argument."""


def find(facts: RuleInput) -> list[Candidate]:
    trace, rows = facts.trace, casts(facts.trace)
    device, host = facts.covered_ns(launched_within(trace, rows)), facts.covered_ns(rows)
    spent, where = (device, message("the device")) if facts.on_device else (host, message("the host"))
    if not facts.exceeds(spent, facts.thresholds.cast_share):
        return []
    condition = message("the data stay on one device, and the operator's name says that it casts (dtypes not recorded)")
    if trace.has_values("dtypes"):
        condition = message("the dtype written differs from the dtype read, and the data stay on one device")
    return [Candidate(
        facts.plural(
            "{count:count} cast {per_step} takes {time} on {where}.",
            "{count:count} casts {per_step} take {time} on {where}.",
            facts.per_step(len(rows)), time=facts.of_step(spent), where=where,
        ),
        evidence={
            "casts": len(rows), "device_ns": round(device), "host_ns": round(host),
            "cast_ratio": spent / max(facts.step_ns, 1), "step_ns": facts.step_ns,
        },
        rows=rows,
        transforms=(Scale(rows, _CASTS_LEFT),),
        ceiling_ns=round(spent),
        preconditions=(condition,),
        assumptions=assume(casts_left=_CASTS_LEFT),
        risks=(message("Sums over many elements lose precision in 16 bits."),),
    )]  # fmt: skip


def casts(trace: Trace) -> arrays.IntArray:
    """Return the rows of the outermost operators that change a tensor's dtype, outside data loading. Raises
    NotEvaluableError if the recording does not show which operators change dtypes."""
    candidates = operators(trace) & ~trace.rows("phase", DATALOADER)
    named = candidates & trace.rows("op_name", "cast")
    copying = named | (candidates & trace.rows("op_name", "copy"))
    outer = nesting.outermost(trace.ints("parent"), copying)
    crossing = matching(trace, "copy_kind", lambda kind: kind.startswith(_CROSSING)) & trace.rows("kind", MEMCPY)
    stays = ~_launching(trace, outer, crossing)
    if trace.has_values("dtypes"):
        # skip scalars, such as wrapped Python numbers
        scalar = matching(trace, "shapes", lambda text: text.startswith("[[]"))
        rows = np.unique(outer[np.flatnonzero(copying & matching(trace, "dtypes", differ) & ~scalar)])
        return rows[stays[rows]]
    rows = np.unique(outer[np.flatnonzero(named)])
    kernels = trace.rows("kind", KERNEL)
    if kernels.any():
        return rows[(_launching(trace, outer, kernels) & stays)[rows]]
    # an operator without "cast" in its name may copy to another device instead
    names = trace.codes("name")
    if not all("cast" in names.values[code].lower() for code in np.unique(names.codes[rows])):
        raise NotEvaluableError(
            plural(
                "{n} operator may be a cast, but no dtypes were recorded",
                "{n} operators may be casts, but no dtypes were recorded",
                len(rows),
            ),
            message("record shapes (record_shapes=True)"),
        )
    return rows


def differ(dtypes: str) -> bool:
    """Return whether the first two recorded dtypes (JSON text) are different floating-point dtypes. Integers and masks
    do not count, because programs need to convert them."""
    first = re.findall(r'"([^"]*)"', dtypes)[:2]
    return len(first) == 2 and first[0] != first[1] and all(_FLOATING.fullmatch(dtype) for dtype in first)


def _launching(trace: Trace, outer: arrays.IntArray, work: arrays.BoolArray) -> arrays.BoolArray:
    owner = np.append(outer, -1)[trace.ints("launched_by")[np.flatnonzero(work)]]
    mask = np.zeros(len(trace), np.bool_)
    mask[owner[owner >= 0]] = True
    return mask
