"""Rule 21, casts: tensors change their type again and again.

Condition: operators whose first two inputs are tensors of different floating-point types (the one that is written, and
the one that is read); without recorded types, operators that are called casts and do work. Transform: most of them go.
"""

from __future__ import annotations

import re
from typing import Final

import numpy as np

from perfkit_core.advice.facts import Candidate, Facts, NotEvaluableError, assume
from perfkit_core.advice.operators import launched_within, matching, operators
from perfkit_core.algorithms import nesting
from perfkit_core.algorithms.arrays import BoolArray, IntArray
from perfkit_core.language.messages import message, plural
from perfkit_core.model.schema import DATALOADER, KERNEL, MEMCPY
from perfkit_core.model.trace import Trace
from perfkit_core.plugins.contracts import Rule
from perfkit_core.replay.transforms import Quantity, Scale

_LEFT: Final = Quantity(
    0.0, 0.25, 0.75, message("prior: the loss, and weights kept in single precision, need their casts")
)
"""Factor of the casts once data stay in one type."""
_CROSSING: Final = ("HtoD", "DtoH")
_FLOATING: Final = re.compile(r"(c10::)?(b?float\d*|double|Half|BFloat16|Float8_\w+)")
"""Types of tensors as frameworks record them; ``Double`` is an argument that is no tensor."""


def find(facts: Facts) -> list[Candidate]:
    """Return one candidate for all casts, by their time on the device, or on the host where there is no device."""
    trace, rows = facts.trace, casts(facts.trace)
    device, host = facts.covered_ns(launched_within(trace, rows)), facts.covered_ns(rows)
    spent, where = (device, message("the device")) if facts.on_device else (host, message("the host"))
    if not facts.exceeds(spent, facts.thresholds.cast_share):
        return []
    condition = message("operators named as casts copy nothing over the bus; dtypes were not recorded")
    if trace.known("dtypes"):
        condition = message("the type written differs from the type read, and the data stay on the same device")
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
        edits=(Scale(rows, _LEFT),),
        ceiling_ns=round(spent),
        preconditions=(condition,),
        assumptions=assume(casts_left=_LEFT),
        risks=(message("Sums over many elements lose digits in 16 bits."),),
    )]  # fmt: skip


def casts(trace: Trace) -> IntArray:
    """Return the rows of the outermost operators, outside data loading, in which a tensor changes its type. Raises
    NotEvaluableError where nothing recorded says whether operators do."""
    candidates = operators(trace) & ~trace.rows("phase", DATALOADER)
    named = candidates & trace.rows("op_name", "cast")
    copying = named | (candidates & trace.rows("op_name", "copy"))
    outer = nesting.outermost(trace.ints("parent"), copying)
    crossing = matching(trace, "copy_kind", lambda kind: kind.startswith(_CROSSING)) & trace.rows("kind", MEMCPY)
    stays = ~_launching(trace, outer, crossing)
    if trace.known("dtypes"):
        # a number without dimensions is left out: it wraps a number of Python, or was computed
        number = matching(trace, "shapes", lambda text: text.startswith("[[]"))
        rows = np.unique(outer[np.flatnonzero(copying & matching(trace, "dtypes", differ) & ~number)])
        return rows[stays[rows]]
    rows = np.unique(outer[np.flatnonzero(named)])
    kernels = trace.rows("kind", KERNEL)
    if kernels.any():
        return rows[(_launching(trace, outer, kernels) & stays)[rows]]
    # an operator that is not called a cast may change nothing but the device
    names = trace.codes("name")
    if not all("cast" in names.values[code].lower() for code in np.unique(names.codes[rows])):
        raise NotEvaluableError(
            plural(
                "{n} operator may be a cast, but no dtypes were recorded",
                "{n} operators may be casts, but no dtypes were recorded",
                len(rows),
            ),
            message("record shapes"),
        )
    return rows


def differ(dtypes: str) -> bool:
    """Return whether the first two of the recorded types (JSON text) are different floating-point types. Integers and
    masks become floating point where they are used, whatever type the others have."""
    first = re.findall(r'"([^"]*)"', dtypes)[:2]
    return len(first) == 2 and first[0] != first[1] and all(_FLOATING.fullmatch(dtype) for dtype in first)


def _launching(trace: Trace, outer: IntArray, work: BoolArray) -> BoolArray:
    """Return the mask of the outermost operators that launched some of the device work."""
    owner = np.append(outer, -1)[trace.ints("launched_by")[np.flatnonzero(work)]]
    mask = np.zeros(len(trace), np.bool_)
    mask[owner[owner >= 0]] = True
    return mask


RULE: Final = Rule("casts", 21, 1, "Keep tensors in one type", find)
