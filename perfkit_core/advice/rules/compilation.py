"""Rule 35: the model is compiled again while it trains, or runs in pieces because its graph breaks."""

from __future__ import annotations

import re
from typing import Final

import numpy as np

from perfkit_core import grouped, nesting
from perfkit_core.advice.facts import Facts
from perfkit_core.advice.model import Candidate
from perfkit_core.advice.rules.phrases import each_period, millis, numbered, times
from perfkit_core.analyses.span import rank_codes
from perfkit_core.language import say
from perfkit_core.plugins.contracts import Rule
from perfkit_core.replay.edits.removal import Remove
from perfkit_core.schema import ANNOTATION, OPERATOR, OPERATOR_DETAIL, PYTHON, STEP
from perfkit_core.trace import BoolArray, IntArray, Trace

COMPILES: Final = re.compile(
    r"(?<![a-z])(re)?compil(e|ation|ing)(?![a-z])|\(dynamo_timed\)$|^dynamo$|create_new_interpreter", re.IGNORECASE
)
"""What compilers record of themselves: any that says so, TorchDynamo, and Paddle's executor of static graphs."""
RESUMES: Final = re.compile(r"dynamo_resume_in_")
"""Functions in which a program goes on behind a break of its graph, as TorchDynamo names them. Paddle's profiler does
not record Python."""


def compiled_again(facts: Facts) -> list[Candidate]:
    """Rule 35. The first recorded step may compile: it is warm-up."""
    facts.need_steps()
    trace = facts.trace
    steady = trace.ints("step") > _first_step(trace)[rank_codes(trace)[0]]
    compiles = steady & trace.rows("kind", OPERATOR, OPERATOR_DETAIL, ANNOTATION) & _named(trace, COMPILES)
    breaks = steady & trace.rows("kind", PYTHON, OPERATOR, OPERATOR_DETAIL) & _named(trace, RESUMES)
    found = [_recompiled(facts, _outermost(trace, compiles))] if compiles.any() else []
    return found + ([_broken(facts, np.flatnonzero(breaks))] if breaks.any() else [])


def _recompiled(facts: Facts, rows: IntArray) -> Candidate:
    """Where most steps compile, without; else no number, as the median step does not change."""
    trace = facts.trace
    number = np.unique(trace.ints("step")[rows])
    hit = np.isin(facts.steps.number, number)
    usual = float(np.median(facts.steps.recorded_ns[~hit])) if (~hit).any() else 0.0
    longer = float(np.mean(facts.steps.recorded_ns[hit]) - usual) if (~hit).any() else None
    each = 2 * int(hit.sum()) > len(facts.steps)
    time = int(trace.ints("dur_ns")[rows].sum())
    what = say(
        "in {compiling} of {count} steps code is compiled again ({time} ms): {steps}",
        compiling=int(hit.sum()),
        count=len(facts.steps),
        time=millis(time),
        steps=numbered(number.tolist()),
    )
    return Candidate(
        what
        + ("" if longer is None else say("; they take {longer} ms longer than the others", longer=millis(longer))),
        evidence={
            "steps": number.tolist(), "compile_ns": time, "compiles": len(rows), "step_ns": facts.step_ns,
            "longer_ns": None if longer is None else round(longer), "per_step_ns": round(facts.per_step(time)),
        },
        rows=rows,
        method="replay" if each else "none",
        edits=(Remove(rows),) if each else (),
        ceiling_ns=round(facts.per_step(time)) if each else None,
        preconditions=(say("the steps are not the first one, which may compile"),),
        risks=(say("code for shapes that change can be slower than code for one shape"),),
    )  # fmt: skip


def _broken(facts: Facts, rows: IntArray) -> Candidate:
    names = facts.trace.codes("name")
    count = len(rows) / max(len(facts.steps), 1)
    return Candidate(
        say(
            "the compiled graph breaks {times} {period}: Python runs between the pieces, nothing is fused across",
            times=times(round(count, 1)),
            period=each_period(facts),
        ),
        evidence={"breaks_per_step": count, "functions": [names.values[i] for i in np.unique(names.codes[rows])][:8]},
        rows=rows,
        method="none",
        preconditions=(say("functions that resume behind a break were recorded"),),
    )


def _outermost(trace: Trace, chosen: BoolArray) -> IntArray:
    return np.flatnonzero(chosen & ~nesting.lies_in(trace.ints("parent"), chosen))


def _named(trace: Trace, pattern: re.Pattern[str]) -> BoolArray:
    names = trace.codes("name")
    found: BoolArray = names.lookup(np.array([bool(pattern.search(name)) for name in names.values], np.bool_), False)
    return found


def _first_step(trace: Trace) -> IntArray:
    """Number of the first step of each rank."""
    code = rank_codes(trace)[0]
    rows = np.flatnonzero(trace.host & trace.rows("kind", STEP) & (trace.ints("step") >= 0))
    return grouped.extremes(code[rows], int(code.max(initial=-1)) + 1, trace.ints("step")[rows])[0]


RULES: Final = (Rule("recompilation", 35, 1, "Compile once", compiled_again),)
