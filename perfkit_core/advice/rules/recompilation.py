"""Rule 35, recompilation: the model is compiled again during training, or runs in pieces because its graph breaks.
Detected: compilations, and functions that resume after a graph break, in steps after the first recorded step.
Predicted: the step time without compilations, if most steps compile. Otherwise nothing is predicted, because the median
step would not change.

Calls that compile single operators are detected as well. Nothing is predicted for them, because the recording does not
show how long operators take that were compiled before."""

from __future__ import annotations

import re
from typing import Final

import numpy as np

from perfkit_core.advice.frames import frames
from perfkit_core.advice.operators import distinct_names, matching, outermost
from perfkit_core.advice.rule_input import Candidate, RuleInput, listed, numbered_steps
from perfkit_core.base.algorithms import arrays, groupby
from perfkit_core.base.language.messages import message
from perfkit_core.causes.host_work import COMPILING, HOST_WORK, host_work
from perfkit_core.replay.transforms import Quantity, Remove
from perfkit_core.trace.model.schema import ANNOTATION, OPERATOR, OPERATOR_DETAIL, PYTHON, STEP
from perfkit_core.views.select import rank_codes

_COMPILES: Final = re.compile(
    r"(?<![a-z])(re)?compil(e|ation|ing)(?![a-z])|\(dynamo_timed\)$|^dynamo$|create_new_interpreter", re.IGNORECASE
)
"""Names of compilation events: general names, and the names of TorchDynamo and of Paddle's executor."""
_RESUMES: Final = re.compile(r"dynamo_resume_in_")
"""Names of TorchDynamo functions that resume after a graph break. Paddle's profiler records no such functions."""
_COMPILING: Final = re.compile(
    r"torch/(_dynamo/(convert_frame|output_graph|symbolic_convert)|_inductor/(compile_fx|graph|codecache)|fx/experimental)"
    r"|paddle/jit/(dy2static/(program_translator|partial_program)|sot/(translate|opcode_translator))"
)
"""Files whose functions run while code is compiled."""
_FUNCTIONS: Final = 8
_WARM_UP: Final = 2
"""Steps with smaller numbers may compile each operator for the first time."""


def find(facts: RuleInput) -> list[Candidate]:
    facts.need_steps()
    trace, code = facts.trace, rank_codes(facts.trace)[0]
    steps = np.flatnonzero(trace.host & trace.rows("kind", STEP) & (trace.ints("step") >= 0))
    first = groupby.extremes(code[steps], int(code.max(initial=-1)) + 1, trace.ints("step")[steps])[0]
    steady = trace.ints("step") > first[code]  # the first recorded step of each rank is warm-up and may compile
    compiles = steady & trace.rows("kind", OPERATOR, OPERATOR_DETAIL, ANNOTATION)
    compiles &= matching(trace, "name", _COMPILES.search)
    breaks = steady & trace.rows("kind", PYTHON, OPERATOR, OPERATOR_DETAIL) & matching(trace, "name", _RESUMES.search)
    candidates = [_recompiled(facts, outermost(trace, compiles))] if compiles.any() else _sampled(facts)
    candidates += _operators(facts)
    if breaks.any():
        rows = np.flatnonzero(breaks)
        count = len(rows) / max(len(facts.steps), 1)
        candidates.append(Candidate(
            facts.plural(
                "The compiled graph has {count:count} break {per_step}: Python runs between the pieces, and nothing is "
                "fused across them.",
                "The compiled graph has {count:count} breaks {per_step}: Python runs between the pieces, and nothing "
                "is fused across them.",
                round(count, 1),
            ),
            evidence={"breaks_per_step": count, "functions": distinct_names(trace, rows)[:_FUNCTIONS]},
            rows=rows,
            method="none",
            preconditions=(message("functions that resume after a graph break were recorded"),),
            words={"compiles": "model"},
        ))  # fmt: skip
    return candidates


def _sampled(facts: RuleInput) -> list[Candidate]:
    """Return the advice on compilations that only the sampled Python frames show. Steps that compile are few and long,
    so the prediction is about the mean step."""
    sampled = frames(facts.trace)
    steps = facts.steps.only(facts.mine)
    if len(steps) < 2 or not len(sampled):
        return []
    begin, end = (facts.replay.recorded_ns(nodes) for nodes in (steps.first, steps.after))
    at = np.searchsorted(begin, sampled.at_ns, side="right") - 1
    compiling = sampled.naming(_COMPILING) & (at > 0) & (sampled.at_ns < end[np.maximum(at, 0)])
    spent = np.bincount(at[compiling], sampled.time_ns(compiling)[compiling], len(steps))
    per_step, mean = spent.sum() / len(steps), round(float(steps.recorded_ns.mean()))
    if per_step <= facts.thresholds.compile_share * mean:
        return []
    numbers = steps.number[spent > 0].tolist()
    lines = sampled.most_common(compiling)
    return [Candidate(
        message(
            "Code is compiled again in {compiling} of {count} steps, for {time:ns} in total: {steps}. The mean step "
            "takes {mean:ns}.",
            compiling=len(numbers), count=len(steps), time=spent.sum(), steps=numbered_steps(numbers), mean=mean,
        ),
        evidence={
            "steps": numbers, "compile_ns": round(spent.sum()), "per_step_ns": round(per_step), "mean_step_ns": mean,
        },
        method="prior",
        base_ns=mean,
        after_ns=Quantity(
            mean - per_step, mean - 0.9 * per_step, mean - 0.5 * per_step,
            message("sampled Python frames; compilations become rarer in a long training"),
        ),
        ceiling_ns=round(per_step),
        preconditions=(message("the first recorded step, which may compile, does not count"),),
        risks=(message("Code that is not compiled for its shapes, or not compiled at all, may run longer."),),
        place=lines[0][0] if lines else None,
        words={"compiles": "model"},
    )]  # fmt: skip


def _operators(facts: RuleInput) -> list[Candidate]:
    """Return the advice on calls that compile operators, if they take long on the host."""
    trace = facts.trace
    calls = trace.host & (trace.ints("step") >= _WARM_UP) & (host_work(trace) == HOST_WORK.index(COMPILING))
    rows = outermost(trace, calls)
    spent = facts.mean_ns(rows)
    if not facts.exceeds(spent, facts.thresholds.compile_share):
        return []
    count = facts.per_step(len(rows))
    return [Candidate(
        facts.plural(
            "{count:count} call of {names} {per_step}, which compiles an operator, takes {time} on the host.",
            "{count:count} calls of {names} {per_step}, which compile operators, take {time} on the host.",
            count, names=listed(distinct_names(trace, rows)), time=facts.of_step(spent),
        ),
        evidence={"calls_per_step": round(count, 1), **facts.part("compile", spent)},
        rows=rows,
        method="none",
        share_ns=round(spent),
        preconditions=(message("steps 0 and 1, which may compile each operator for the first time, do not count"),),
        risks=(message("Operators that were compiled before, for any shape, may run longer."),),
        words={"compiles": "operators"},
        title=message("Do not compile operators in the steps"),
    )]  # fmt: skip


def _recompiled(facts: RuleInput, rows: arrays.IntArray) -> Candidate:
    trace, recorded = facts.trace, facts.steps.recorded_ns
    numbers = np.unique(trace.ints("step")[rows])
    hit = np.isin(facts.steps.number, numbers)
    count, time = int(hit.sum()), int(trace.ints("dur_ns")[rows].sum())
    most = 2 * count > len(facts.steps)
    longer, more = None, None
    if (~hit).any():
        longer = float(np.mean(recorded[hit]) - float(np.median(recorded[~hit])))
        more = message("; these steps take {longer:ns} longer than the other steps", longer=longer)
    return Candidate(
        message(
            "Code is compiled again in {compiling} of {count} steps, for {time:ns} in total: {steps}{more}.",
            compiling=count, count=len(facts.steps), time=time, steps=numbered_steps(numbers.tolist()), more=more,
        ),
        evidence={
            "steps": numbers.tolist(), "compile_ns": time, "compiles": len(rows), "step_ns": facts.step_ns,
            "longer_ns": None if longer is None else round(longer), "per_step_ns": round(facts.per_step(time)),
        },
        rows=rows,
        method="replay" if most else "none",
        transforms=(Remove(rows),) if most else (),
        ceiling_ns=round(facts.per_step(time)) if most else None,
        preconditions=(message("the first recorded step, which may compile, does not count"),),
        risks=(message("Code that is compiled for varying shapes can be slower than code for one shape."),),
        words={"compiles": "model"},
    )  # fmt: skip
