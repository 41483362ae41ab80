"""Rule 17: the optimizer updates the parameters one by one."""

from __future__ import annotations

import re
from typing import Final

import numpy as np

from perfkit_core import nesting
from perfkit_core.advice.facts import Facts
from perfkit_core.advice.model import Assumption, Candidate, NotEvaluableError
from perfkit_core.advice.rules import calls, optimizer_costs
from perfkit_core.advice.rules.optimizer_costs import Loop
from perfkit_core.advice.rules.phrases import counted, part_of_step
from perfkit_core.language import in_english, say
from perfkit_core.plugins.contracts import Rule
from perfkit_core.replay.edits.contract import Edit
from perfkit_core.replay.edits.durations import Scale
from perfkit_core.schema import OPTIMIZER, OTHER
from perfkit_core.trace import BoolArray, IntArray, Trace

CLEARS: Final = r"zero_?grad|clear_?grad"
_STEP: Final = re.compile(r"(\w+)\.step$")
_BATCHED: Final = r"foreach|fused|merged|multi_?tensor"
_MOST_A_TENSOR: Final = 4
"""No optimizer of the frameworks calls an operator more often for one tensor."""
_NEARLY_ALL: Final = 5 / 6
"""Momentum calls two operators twice for each tensor and one once: what these two tell of is 4/5 of the calls. What is
called for half of the tensors only, as weight decay is, is 1/7 of them or less."""


def per_tensor(facts: Facts) -> list[Candidate]:
    """Rule 17: an optimizer calls its operators once for each parameter."""
    trace = facts.trace
    spans = _spans(facts)
    roots = calls.outermost(trace)
    own = np.full(len(trace), -1, np.int64)
    own[spans] = np.arange(len(spans))
    updates = _updates(trace, spans)
    span = np.where(updates, nesting.first_on_path(trace.ints("parent"), own), -1)
    batched = np.unique(span[calls.operators(trace) & calls.named(trace, _BATCHED) & (span >= 0)])
    roots = roots[(span[roots] >= 0) & ~np.isin(span[roots], batched)]
    parts = np.flatnonzero(updates & ~nesting.lies_in(trace.ints("parent"), updates))
    own_ns = np.zeros(len(spans), np.int64)
    np.add.at(own_ns, span[parts], trace.ints("dur_ns")[parts])
    found = _loops(trace, spans, own_ns, roots, span[roots], facts.thresholds.optimizer_tensors)
    if found is None:
        return []
    looping, loop = found
    return _at_once(facts, parts[np.isin(span[parts], looping)], loop)


def _updates(trace: Trace, spans: IntArray) -> BoolArray:
    """True for the spans and all in them; of a span that calls a closure only for what comes after that. Where
    gradients are cleared nothing is updated."""
    parent, closure = trace.ints("parent"), trace.rows("phase", OTHER)[spans]
    whole, around = np.zeros((2, len(trace)), np.bool_)
    whole[spans[~closure]], around[spans[closure]] = True, True
    clears = trace.rows("kind", OPTIMIZER) & calls.named(trace, CLEARS)
    after = trace.rows("phase", OPTIMIZER) & nesting.lies_in(parent, around)
    found: BoolArray = (whole | nesting.lies_in(parent, whole) | after) & ~clears & ~nesting.lies_in(parent, clears)
    return found


def _spans(facts: Facts) -> IntArray:
    """Outermost optimizer spans that update parameters. Raises NotEvaluableError."""
    trace = facts.trace
    mask = trace.host & trace.rows("kind", OPTIMIZER) & (facts.replay.first >= 0) & ~calls.named(trace, CLEARS)
    rows = calls.in_steps(facts, np.flatnonzero(mask & ~nesting.lies_in(trace.ints("parent"), mask)))
    if not len(rows):
        raise NotEvaluableError(say("no step of an optimizer was recorded: the framework's own optimizers record it"))
    return rows


def _loops(
    trace: Trace, spans: IntArray, own_ns: IntArray, roots: IntArray, of_span: IntArray, least: float
) -> tuple[IntArray, Loop] | None:
    """Which of the spans are loops over at least so many tensors, and what the typical one does. ``own_ns`` is what
    each takes for updates."""
    names = trace.codes("name").codes[roots].astype(np.int64)
    width = int(names.max(initial=0)) + 1
    key, counts = np.unique(of_span * width + names, return_counts=True)
    span, begins = np.unique(key // width, return_index=True)
    found = np.array([tensors_of(one) for one in np.split(counts, begins[1:]) if len(one)], np.int64)
    looping = span[found >= least]
    if not len(looping):
        return None
    tensors = float(np.median(found[found >= least]))
    within = np.isin(of_span, looping)
    operators = max(round(within.sum() / len(looping) / tensors), 1)
    total = float(np.median(own_ns[looping]))
    whole = trace.rows("op_name", "optimizer_update")[roots[within]].mean() > 0.5
    first = roots[within][0] if whole else spans[looping[0]]
    name = trace.codes("name").values[trace.codes("name").codes[first]]
    return looping, Loop(name, tensors, operators, total / (tensors * operators), bool(whole))


def tensors_of(calls: IntArray) -> int:
    """Over how many tensors a loop goes that calls each of its operators so often, shape (operators,): the largest of
    these numbers that nearly all calls are multiples of, or else the one that most are. Most operators are called once
    for a tensor, some several times, some not for all tensors; what is called much less often is none of the loop."""
    often = calls[calls * _MOST_A_TENSOR >= calls.max()]
    told: list[tuple[int, int]] = [
        (int(often[often % tensors == 0].sum()), tensors) for tensors in np.unique(often)[::-1].tolist()
    ]
    nearly_all = [tensors for count, tensors in told if count >= _NEARLY_ALL * often.sum()]
    return nearly_all[0] if nearly_all else max(told)[1]


def class_of(name: str, whole: bool) -> str:
    """``SGD`` of a span that ends in ``SGD.step``; of an operator that is the ``whole`` update its name without the
    folder and the mark of an update in place: ``adam`` of ``folder.adam_``; ``optimizer`` where neither tells."""
    found = _STEP.search(name)
    if found:
        return found[1]
    return name.split(" ")[0].rpartition(".")[2].rstrip("_") if whole else "optimizer"


def _at_once(facts: Facts, parts: IntArray, loop: Loop) -> list[Candidate]:
    """One update of all parameters in place of these parts; nothing where that was measured to gain nothing."""
    kernels = calls.kernels_below(facts.trace, parts)
    factor = optimizer_costs.HOST if len(kernels) else optimizer_costs.on_host(loop)
    if factor is None:
        return []
    edits: list[Edit] = [Scale(parts, factor, device=False)]
    assumptions = [Assumption("host_factor", factor, factor.source)]
    part = calls.per_step(facts, parts, facts.trace.ints("dur_ns")[parts])
    host = float(np.median(part))
    if len(kernels):
        dur = facts.trace.ints("dur_ns")[kernels]
        part = part + calls.per_step(facts, kernels, dur)
        less = optimizer_costs.of_kernels(float(np.median(dur)))
        edits.append(Scale(kernels, less, below=False, host=False))
        assumptions.append(Assumption("kernel_factor", less, less.source))
    return [
        Candidate(
            say(
                "the optimizer calls {operators} for each of {tensors}, one tensor after the other: {part}",
                operators=counted(loop.operators, in_english("operator"), in_english("operators")),
                tensors=counted(loop.tensors, in_english("tensor"), in_english("tensors")),
                part=part_of_step(facts, host),
            ),
            evidence={
                "optimizer": loop.name, "optimizer_ns": round(host), "step_ns": facts.step_ns,
                "tensors": round(loop.tensors), "operators_per_tensor": loop.operators,
                "operator_ns": round(loop.operator_ns), "kernels": len(kernels),
            },
            rows=parts,
            edits=tuple(edits),
            ceiling_ns=calls.without(facts, part),
            preconditions=(say(
                "{tensors:.0f} tensors or more are updated by operators of the same names",
                tensors=loop.tensors,
            ),),
            vetoes=(say("an operator that updates many tensors at once was looked for and not found"),),
            assumptions=tuple(assumptions),
            risks=(say("the order of additions changes: results differ in the last bits"),),
            fill={"optimizer": loop.name},
            words={"optimizer_class": class_of(loop.name, loop.whole)},
        )
    ]  # fmt: skip


RULES: Final = (Rule("per-tensor-optimizer", 17, 1, "Update all parameters at once", per_tensor),)
