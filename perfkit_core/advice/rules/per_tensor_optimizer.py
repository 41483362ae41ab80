"""Rule 17, per-tensor-optimizer: the optimizer updates the parameters one by one.
Detected: an optimizer step calls the same operators for each of at least ``optimizer_tensors`` (10) tensors. On a host,
two tensors are enough if the update takes more than ``foreach_share`` of the step. The same holds for operators on
lists of tensors, which read and write all parameters again and again.
Predicted: the step time with a fused update. The update's time is the recorded time multiplied by a factor.

The factors for CPUs depend on the operators per tensor and the time of an operator. They were measured on complete
optimizer steps: one thread, profiler on, medians of interleaved runs, tensors of 64 to 1,000,000 elements."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

import numpy as np

from perfkit_core.advice.operators import matching, name_of, operators, outermost, within
from perfkit_core.advice.rule_input import Candidate, NotEvaluableError, RuleInput, assume
from perfkit_core.base.algorithms import nesting
from perfkit_core.base.algorithms.arrays import IntArray
from perfkit_core.base.language.messages import message, plural
from perfkit_core.replay.transforms import Quantity, Scale, Transform
from perfkit_core.trace.model.schema import KERNEL, OPTIMIZER, OTHER
from perfkit_core.trace.model.trace import Trace
from perfkit_core.views.select import marked
from perfkit_core.views.steps.step_phases import CLEARS_GRADIENTS

_CALL_OVERHEAD_NS: Final = 10_000
_MANY: Final = 6
"""With at least this many operators per tensor, the factors ``_MANY_SMALL`` and ``_MANY_LARGE`` apply."""
_CPU: Final = message("measured on a CPU with torch 2.13: complete optimizer steps, fused compared with a loop")
_FEW_SMALL: Final = Quantity(0.20, 0.27, 0.45, _CPU)
_FEW_LARGE: Final = Quantity(0.69, 0.73, 0.80, _CPU)
_MANY_SMALL: Final = Quantity(0.10, 0.22, 0.44, _CPU)
_MANY_LARGE: Final = Quantity(0.13, 0.30, 0.43, _CPU)
_ONE_SMALL: Final = Quantity(0.38, 0.50, 0.79, _CPU)
_FOREACH: Final = Quantity(
    0.66, 0.80, 1.1, message("measured on a CPU with torch 2.13: RMSprop and Adagrad, foreach compared with a loop")
)
_MERGED: Final = Quantity(
    0.50, 0.58, 0.72, message("measured on a CPU with paddle 3.3: Adam, use_multi_tensor compared with a loop")
)
_LAUNCHING: Final = Quantity(
    0.03, 0.1, 0.3, message("estimate: one launch for 30 to 100 tensors instead of several launches for each tensor")
)
_KERNELS_SMALL: Final = Quantity(
    0.03, 0.1, 0.3, message("estimate: a kernel of a few µs takes no longer for 30 to 100 tensors than for one")
)
_KERNELS_LARGE: Final = Quantity(
    0.35, 0.6, 1.0, message("estimate: the update is memory-bound, and a fused update reads each tensor once")
)
_ONE_PASS: Final = Quantity(
    0.25, 0.45, 0.9, message("estimate: a fused update reads and writes each parameter once, on all cores")
)
_FUSED: Final = re.compile(r"(?<![a-z])(adamw?|sgd|adagrad)(?![a-z])", re.IGNORECASE)
_WHOLE_UPDATE: Final = re.compile(r"fused|merged|multi_?tensor", re.IGNORECASE)
"""Operators that do the whole update. They may be accompanied by operators on lists, for example of step numbers."""
_LISTS: Final = re.compile(r"foreach", re.IGNORECASE)
_ADAM: Final = re.compile(r"(?<![a-z])adam_?(?![a-z])", re.IGNORECASE)
_STEP: Final = re.compile(r"(\w+)\.step$")
_BATCHED: Final = re.compile(r"foreach|fused|merged|multi_?tensor", re.IGNORECASE)
_MOST_PER_TENSOR: Final = 4
"""No optimizer of a supported framework calls the same operator more often than this for one tensor."""
_MOST_OF_IT: Final = 0.5
_NEARLY_ALL: Final = 5 / 6
"""A candidate for the number of tensors must explain at least this share of all calls. A candidate explains the calls
of an operator if it divides their number. Two examples with n tensors limit this share:

- More than 4/5. With Nesterov momentum, three operators have 2n, 2n and n calls. The wrong candidate 2n explains 4n
  of 5n calls.
- At most 6/7. With momentum, and weight decay for half of the tensors, three operators have 2n, n and n/2 calls. The
  right candidate n explains 3n of 3.5n calls."""


@dataclass(frozen=True, slots=True)
class Loop:
    """An optimizer step that updates its tensors in a loop."""

    name: str  # name of the optimizer, or of its operator if ``single_operator`` is true
    tensors: float  # number of tensors
    operators: float  # number of operators per tensor
    operator_ns: float  # mean time of an operator, including the gap around it
    single_operator: bool  # whether one operator does the whole update of a tensor
    longest: float  # share of the longest operator in the time of an update


def find(facts: RuleInput) -> list[Candidate]:
    trace, parent = facts.trace, facts.trace.ints("parent")
    # the outermost optimizer spans that update parameters
    clears = trace.rows("kind", OPTIMIZER) & matching(trace, "name", CLEARS_GRADIENTS.search)
    mask = trace.host & trace.rows("kind", OPTIMIZER) & (facts.replay.first >= 0)
    spans = outermost(trace, mask & ~clears)
    spans = spans[facts.in_steps[spans]]
    if not len(spans):
        raise NotEvaluableError(
            message("no optimizer step was recorded"), message("use the framework's own optimizers, which record steps")
        )
    # updates: host events in the spans that do not clear gradients; if a step has a closure, only events after it
    closure = trace.rows("phase", OTHER)[spans]
    after = trace.rows("phase", OPTIMIZER) & nesting.lies_in(parent, marked(trace, spans[closure]))
    updates = (within(trace, spans[~closure]) | after) & ~clears & ~nesting.lies_in(parent, clears)
    span_number = np.full(len(trace), -1, np.int64)
    span_number[spans] = np.arange(len(spans))
    span = np.where(updates, nesting.first_on_path(parent, span_number), -1)
    batched = np.unique(span[operators(trace) & matching(trace, "name", _BATCHED.search) & (span >= 0)])
    roots = outermost(trace, operators(trace))
    roots = roots[(span[roots] >= 0) & ~np.isin(span[roots], batched)]
    parts = outermost(trace, updates)
    own_ns = np.zeros(len(spans), np.int64)
    np.add.at(own_ns, span[parts], trace.ints("dur_ns")[parts])
    # an update that takes long is worth a change, even of few tensors
    long = facts.exceeds(float(np.median(own_ns)), facts.thresholds.foreach_share) and not facts.on_device
    least = 2 if long else facts.thresholds.optimizer_tensors
    loops = _loops(trace, spans, own_ns, roots, span[roots], least)
    if loops:
        return _updated_together(facts, parts[np.isin(span[parts], loops[0])], loops[1])
    names = matching(trace, "name", lambda name: bool(_FUSED.search(name)))
    already = np.unique(span[operators(trace) & matching(trace, "name", _WHOLE_UPDATE.search) & (span >= 0)])
    fusible = np.setdiff1d(batched[names[spans[batched]]], already)
    lists = operators(trace) & matching(trace, "name", _LISTS.search) & np.isin(span, fusible)
    return [] if facts.on_device else _fused(facts, parts[np.isin(span[parts], fusible)], outermost(trace, lists))


def _fused(facts: RuleInput, parts: IntArray, calls: IntArray) -> list[Candidate]:
    """Return the advice to update with one operator instead of operators on lists of tensors (``calls``)."""
    trace, dur = facts.trace, facts.trace.ints("dur_ns")
    spent = facts.median_total(parts, dur[parts])
    if not len(calls) or not facts.exceeds(spent, facts.thresholds.foreach_share):
        return []
    name = name_of(trace, parts[0])
    return [Candidate(
        message(
            "The optimizer calls {count:count} operators on lists of tensors, and each of them reads and writes all "
            "parameters. This takes {time}.",
            count=facts.per_step(len(calls)), time=facts.of_step(spent),
        ),
        evidence={"optimizer": name, "optimizer_ns": round(spent), "step_ns": facts.step_ns, "operators": len(calls)},
        rows=parts,
        transforms=(Scale(parts, _ONE_PASS, device=False),),
        ceiling_ns=facts.ceiling_ns(facts.totals(parts, dur[parts])),
        preconditions=(message("the optimizer has an operator for the whole update"),),
        assumptions=assume(host_factor=_ONE_PASS),
        risks=(message("The order of additions changes, so results differ in the last bits."),),
        fill={"optimizer": name},
        words={"optimizer_class": class_of(name, False)},
    )]  # fmt: skip


def _loops(
    trace: Trace, spans: IntArray, own_ns: IntArray, roots: IntArray, of_span: IntArray, least: float
) -> tuple[IntArray, Loop] | None:
    """Find the spans that update at least ``least`` tensors in a loop. Return their positions in ``spans``, and a
    Loop with their typical numbers. Return None if there are no such spans.

    - ``spans``: rows of optimizer steps; ``own_ns``: update time of each span
    - ``roots``: rows of the outermost operators in spans; ``of_span``: for each, the position of its span"""
    names = trace.codes("name").codes[roots].astype(np.int64)
    width = int(names.max(initial=0)) + 1
    key, counts = np.unique(of_span * width + names, return_counts=True)
    span, begins = np.unique(key // width, return_index=True)
    tensors = np.array([tensors_of(calls) for calls in np.split(counts, begins[1:]) if len(calls)], np.int64)
    looping = span[tensors >= least]
    if not len(looping):
        return None
    typical = float(np.median(tensors[tensors >= least]))
    inside = np.isin(of_span, looping)
    count = max(round(inside.sum() / len(looping) / typical), 1)
    total = float(np.median(own_ns[looping]))
    single_operator = trace.rows("op_name", "optimizer_update")[roots[inside]].mean() > 0.5
    name = name_of(trace, roots[inside][0] if single_operator else spans[looping[0]])
    dur, longest = trace.ints("dur_ns")[roots[inside]], 0.0
    if not len(dur) % len(looping):
        each = dur.reshape(len(looping), -1).min(axis=0)  # without interruptions, which make single calls longer
        longest = float(each.max() / max(each.sum(), 1))
    return looping, Loop(name, typical, count, total / (typical * count), bool(single_operator), longest)


def tensors_of(calls: IntArray) -> int:
    """Return how many tensors a loop updates. ``calls`` is the number of calls of each operator, shape (operators,).

    Most operators are called once per tensor. Some are called several times, and some only for a part of the tensors.
    An operator is ignored if another operator has more than ``_MOST_PER_TENSOR`` times as many calls. Each item of
    ``calls`` is a candidate for the result. A candidate explains the calls of an operator if it divides their number.
    The result is the largest candidate that explains at least ``_NEARLY_ALL`` of the calls: 10 for the calls 10, 10 and
    20. If there is none, the result is the candidate that explains the most calls."""
    often = calls[calls * _MOST_PER_TENSOR >= calls.max()]
    explained: list[tuple[int, int]] = [
        (int(often[often % tensors == 0].sum()), tensors) for tensors in np.unique(often)[::-1].tolist()
    ]
    nearly_all = [tensors for count, tensors in explained if count >= _NEARLY_ALL * often.sum()]
    return nearly_all[0] if nearly_all else max(explained)[1]


def _updated_together(facts: RuleInput, parts: IntArray, loop: Loop) -> list[Candidate]:
    """Return the advice to update all parameters in one call, or an empty list if measurements show no saving."""
    trace, dur = facts.trace, facts.trace.ints("dur_ns")
    below = np.append(within(trace, parts), False)  # the index -1, for kernels without a launch, gives False
    kernels = np.flatnonzero(trace.rows("kind", KERNEL) & below[trace.ints("launched_by")])
    factor = _LAUNCHING if len(kernels) else _host_factor(loop)
    if factor is None or (loop.single_operator and loop.longest > _MOST_OF_IT and not len(kernels)):
        return []  # one large tensor takes most of the time, and one call for all takes as long
    changes: list[Transform] = [Scale(parts, factor, device=False)]
    assumptions = assume(host_factor=factor)
    part = facts.totals(parts, dur[parts])
    host = float(np.median(part))
    if len(kernels):
        part = part + facts.totals(kernels, dur[kernels])
        of_kernels = _KERNELS_SMALL if float(np.median(dur[kernels])) < _CALL_OVERHEAD_NS else _KERNELS_LARGE
        changes.append(Scale(kernels, of_kernels, below=False, host=False))
        assumptions += assume(kernel_factor=of_kernels)
    return [Candidate(
        plural(
            "The optimizer calls {n} operator for each of {tensors:count} tensors, one tensor after the other. This "
            "takes {time}.",
            "The optimizer calls {n} operators for each of {tensors:count} tensors, one tensor after the other. This "
            "takes {time}.",
            int(loop.operators), tensors=loop.tensors, time=facts.of_step(host),
        ),
        evidence={
            "optimizer": loop.name, "optimizer_ns": round(host), "step_ns": facts.step_ns,
            "tensors": round(loop.tensors), "operators_per_tensor": loop.operators,
            "operator_ns": round(loop.operator_ns), "kernels": len(kernels),
        },
        rows=parts,
        transforms=tuple(changes),
        ceiling_ns=facts.ceiling_ns(part),
        preconditions=(message("the same operators update {tensors:count} tensors", tensors=loop.tensors),),
        vetoes=(message("an operator that updates many tensors in one call"),),
        assumptions=assumptions,
        risks=(message("The order of additions changes, so results differ in the last bits."),),
        fill={"optimizer": loop.name},
        words={
            "optimizer_class": class_of(loop.name, loop.single_operator),
            "embeddings": "yes" if trace.rows("op_name", "embedding", "embedding_grad").any() else "no",
        },
        needs_remedy=True,
    )]  # fmt: skip


def _host_factor(loop: Loop) -> Quantity | None:
    """Return the time of a fused update on a CPU, divided by the recorded time; None if fusing saves nothing."""
    if loop.single_operator:
        return _MERGED if _ADAM.search(loop.name) else None
    small = loop.operator_ns < _CALL_OVERHEAD_NS
    if not _FUSED.search(loop.name):
        return _FOREACH if small else None
    if loop.operators >= _MANY:
        return _MANY_SMALL if small else _MANY_LARGE
    if loop.operators > 1:
        return _FEW_SMALL if small else _FEW_LARGE
    return _ONE_SMALL if small else None


def class_of(name: str, single_operator: bool) -> str:
    """Return the class name of an optimizer: ``SGD`` for the span ``Optimizer.step#SGD.step``. If a single operator
    updates a tensor (``single_operator``), return it: ``adam`` for ``folder.adam_``. Otherwise return ``optimizer``."""
    match = _STEP.search(name)
    if match:
        return match[1]
    operator = name.split(" ")[0].rpartition(".")[2].rstrip("_")
    return operator if single_operator and operator.isidentifier() else "optimizer"  # it becomes part of code
