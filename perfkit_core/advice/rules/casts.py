"""Rule 21: tensors change their type of numbers again and again."""

from __future__ import annotations

import re
from typing import Final

import numpy as np

from perfkit_core import nesting
from perfkit_core.advice.facts import Facts
from perfkit_core.advice.model import Assumption, Candidate, NotEvaluableError
from perfkit_core.advice.rules.device_time import covered_ns, launched_within
from perfkit_core.advice.rules.phrases import counted, each_period, part, verb
from perfkit_core.language import in_english, say
from perfkit_core.plugins.contracts import Rule
from perfkit_core.replay.edits.durations import Scale
from perfkit_core.replay.quantity import Quantity
from perfkit_core.schema import DATALOADER, KERNEL, MEMCPY, OPERATOR
from perfkit_core.trace import BoolArray, IntArray, Trace

LEFT: Final = Quantity(
    0.0, 0.25, 0.75, in_english("prior: the loss, and weights kept in single precision, need theirs")
)
"""What is left of the casts once data stay in one type."""
_CROSSING: Final = ("HtoD", "DtoH")


def find(facts: Facts) -> list[Candidate]:
    """Operators that change types take a share of each step: on the device, or on the host where there is no device."""
    rows = casts(facts.trace)
    device, host = covered_ns(facts, _work(facts.trace, rows)), covered_ns(facts, rows)
    taken = device if facts.on_device else host
    if taken <= facts.thresholds.cast_share * facts.step_ns:
        return []
    where = say("the device") if facts.on_device else say("the host")
    each = facts.per_step(len(rows))
    return [
        Candidate(
            say(
                "{counted} {period} {verb} {part} on {where}",
                counted=counted(each, in_english("cast"), in_english("casts")),
                period=each_period(facts),
                verb=verb(each, "takes", "take"),
                part=part(facts, taken),
                where=where,
            ),
            evidence={
                "casts": len(rows), "device_ns": round(device), "host_ns": round(host),
                "cast_ratio": taken / max(facts.step_ns, 1), "step_ns": facts.step_ns,
            },
            rows=rows,
            edits=(Scale(rows, LEFT),),
            ceiling_ns=round(taken),
            preconditions=(_known_by(facts.trace),),
            assumptions=(Assumption("casts_left", LEFT, LEFT.source),),
            risks=(say("sums over many elements lose digits in 16 bits"),),
        )
    ]  # fmt: skip


def _known_by(trace: Trace) -> str:
    if trace.known("dtypes"):
        return say("what is written has another type than what is read, and stays on its side of the bus")
    return say("operators are called casts, and do work that moves nothing over the bus; types were not recorded")


def casts(trace: Trace) -> IntArray:
    """Rows of the outermost operators, outside the loading of data, in which a tensor changes its type. Raises
    NotEvaluableError where there are casts of which nothing tells whether they do."""
    operators = trace.host & trace.rows("kind", OPERATOR) & ~trace.rows("phase", DATALOADER)
    named, copying = operators & trace.rows("op_name", "cast"), operators & trace.rows("op_name", "copy")
    parent = trace.ints("parent")
    outer = nesting.outermost(parent, named | copying)
    if not trace.known("dtypes"):
        return _launching(trace, named, outer)
    changing = np.unique(outer[np.flatnonzero((named | copying) & _two_types(trace))])
    return changing[~_crosses(trace, outer)[changing]]


def _launching(trace: Trace, named: BoolArray, outer: IntArray) -> IntArray:
    """Without types: casts that did work and moved nothing between host and device."""
    found = np.unique(outer[np.flatnonzero(named)])
    if not trace.rows("kind", KERNEL).any():
        return found if _always_cast(trace, found) else _cannot_tell(found)
    launched_by = trace.ints("launched_by")[np.flatnonzero(trace.rows("kind", KERNEL))]
    busy = np.zeros(len(trace), np.bool_)
    owner = np.append(outer, -1)[launched_by]
    busy[owner[owner >= 0]] = True
    return found[busy[found] & ~_crosses(trace, outer)[found]]


def _always_cast(trace: Trace, rows: IntArray) -> bool:
    """Whether the operators are called casts: those that are not may change nothing but the device."""
    names = trace.codes("name")
    return all("cast" in names.values[code].lower() for code in np.unique(names.codes[rows]))


def _cannot_tell(found: IntArray) -> IntArray:
    raise NotEvaluableError(
        say(
            "{counted} may change types, but no dtypes were recorded: record shapes",
            counted=counted(len(found), in_english("operator"), in_english("operators")),
        )
    )


def _two_types(trace: Trace) -> BoolArray:
    """True for operators whose first two inputs are tensors of different types: what is written, and what is read. A
    single number without dimensions is not meant: such a one wraps a number of Python, or has been computed."""
    dtypes, shapes = trace.codes("dtypes"), trace.codes("shapes")
    number = shapes.lookup(np.array([text.startswith("[[]") for text in shapes.values], np.bool_), False)
    changed: BoolArray = dtypes.lookup(np.array([differ(text) for text in dtypes.values], np.bool_), False) & ~number
    return changed


def differ(dtypes: str) -> bool:
    """Whether the first two of the recorded types (JSON text) are floating point, and not the same. Integers and masks
    become floating point where they are used, whatever type the others have."""
    first = re.findall(r'"([^"]*)"', dtypes)[:2]
    return len(first) == 2 and first[0] != first[1] and all(_FLOATING.fullmatch(one) for one in first)


_FLOATING: Final = re.compile(r"(c10::)?(b?float\d*|double|Half|BFloat16|Float8_\w+)")
"""Types of tensors as frameworks record them; ``Double`` is an argument that is none."""


def _crosses(trace: Trace, outer: IntArray) -> BoolArray:
    """True for outermost operators that move data between host and device."""
    kinds = trace.codes("copy_kind")
    crossing = kinds.lookup(np.array([text.startswith(_CROSSING) for text in kinds.values], np.bool_), False)
    rows = np.flatnonzero(crossing & trace.rows("kind", MEMCPY))
    owner = np.append(outer, -1)[trace.ints("launched_by")[rows]]
    found = np.zeros(len(trace), np.bool_)
    found[owner[owner >= 0]] = True
    return found


def _work(trace: Trace, rows: IntArray) -> IntArray:
    inside = np.zeros(len(trace), np.bool_)
    inside[rows] = True
    return launched_within(trace, inside | nesting.lies_in(trace.ints("parent"), inside))


RULES: Final = (Rule("casts", 21, 1, "Keep tensors in one type", find),)
