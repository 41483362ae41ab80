"""Rule 56, slow-kernels: kernels of an operator run far below the peak rates of the device.
Detected: products, convolutions, attention and norms whose FLOPs and bytes need, at the peak rates of the device, less
than ``slow_ratio`` of the time that their kernels take. Without shapes, products and attention with kernels that are
written for an earlier architecture than that of the device.
Predicted: nothing, because the recording does not show how fast other kernels would be. The ceiling is the time above
the limits of the device."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from perfkit_core.advice.matrix_products import cuda_major, multiplies
from perfkit_core.advice.operators import backward_of, kernels, launched_within
from perfkit_core.advice.rule_input import Candidate, NotEvaluableError, RuleInput, listed
from perfkit_core.advice.rules.unfused_attention import chain_rows
from perfkit_core.base.algorithms import groupby
from perfkit_core.base.algorithms.arrays import NO_ROW, BoolArray, FloatArray, IntArray
from perfkit_core.base.language.messages import message
from perfkit_core.base.operators.names import family
from perfkit_core.plugins.contracts import ViewRequest
from perfkit_core.trace.model.schema import KERNEL
from perfkit_core.views.devices import roofline
from perfkit_core.views.operators.calls import operator_names

_FAMILIES: Final = ("matmul", "conv", "attention", "rnn", "normalization")
"""Families of operators whose work follows from their shapes, and that no other rule replaces."""
_ARCHITECTURE: Final = re.compile(
    r"(?:^|[^a-z])(?:(?P<name>volta|turing|ampere)|sm_?(?P<major>\d{1,2})\d(?!\d))|(?P<flash>flash)_(?:fwd|bwd)\w*kernel"
)
_TEMPLATE: Final = re.compile(r"^void |[<(].*")
_MAJOR: Final = {"volta": 7, "turing": 7, "ampere": 8, "flash": 8, "nvjet": 9}
"""Major compute capabilities that kernels with these words are written for. For FlashAttention-2, see Shah et al.,
FlashAttention-3, NeurIPS 2024; kernels named nvjet exist from this capability on."""


def find(facts: RuleInput) -> list[Candidate]:
    facts.need_device()
    if not facts.exceeds(_spent_ns(facts, kernels(facts.trace)), facts.thresholds.slow_busy):
        return []  # faster kernels would wait for the host
    return list(_below_limits(facts)) if facts.trace.has_values("shapes") else _of_earlier_architecture(facts)


@dataclass(frozen=True, slots=True)
class _Groups:
    """Kernels by operator name, shapes, type and device. All arrays but the first two have the shape (groups,)."""

    row: IntArray  # of each kernel
    code: IntArray  # group of each kernel
    name: IntArray  # code of the operator's name
    shapes: IntArray  # code of the recorded shapes
    device: IntArray  # code of the device
    total_ns: IntArray  # time of the kernels
    least_ns: FloatArray  # their time at the peak rates of the device; NaN if unknown

    @property
    def ratio(self) -> FloatArray:
        return self.least_ns / np.maximum(self.total_ns, 1)

    @classmethod
    def of(cls, facts: RuleInput) -> _Groups:
        """Return the kernels by shapes. Raises NotEvaluableError if no limit is known. The limit of an operator counts
        once, at its longest kernel:

            item      operator   code  dur_ns  limit_ns
            kernel 0  mm, row 5     0      80        20
            kernel 1  mm, row 5     0      20         0
        """
        trace = facts.trace
        items = roofline.timed(trace, facts.in_steps)
        items = items.of((items.operator != NO_ROW) & trace.rows("kind", KERNEL)[items.row] & _judged(facts)[items.row])
        limits = roofline.limits(trace, ViewRequest(), items)
        limit_ns = np.maximum(limits.compute_ns, limits.memory_ns)
        if not (limit_ns > 0).any():
            raise NotEvaluableError(
                message("the peak rates of the device, or the FLOPs of its operators, are not known")
            )
        columns = (operator_names(trace), trace.codes("shapes"), trace.codes("dtypes"))
        keys = (*(column.codes[items.operator].astype(np.int64) for column in columns), items.device)
        code, first = groupby.distinct(keys, len(items.row))
        limit_ns = np.where(roofline.main_items(trace, items), limit_ns, 0)
        name, shapes, _, device = (key[first] for key in keys)
        total_ns = groupby.sums(code, len(first), trace.ints("dur_ns")[items.row])
        return cls(items.row, code, name, shapes, device, total_ns, np.bincount(code, limit_ns).astype(np.float64))


def _below_limits(facts: RuleInput) -> Iterator[Candidate]:
    trace, groups, least = facts.trace, _Groups.of(facts), facts.thresholds
    known = (groups.ratio > 0) & (groups.total_ns >= least.slow_kernel_ns * np.bincount(groups.code))
    slow = known & (groups.ratio < least.slow_ratio)
    for code in np.unique(groups.name[slow]).tolist():
        chosen = slow & (groups.name == code)
        rows = groups.row[chosen[groups.code]]
        spent = _spent_ns(facts, rows)
        if not facts.exceeds(spent, least.slow_share):
            continue
        operator = operator_names(trace).values[code]
        reached = float(groups.least_ns[chosen].sum() / groups.total_ns[chosen].sum())
        costliest = np.where(chosen, groups.total_ns - groups.least_ns, -1).argmax()
        inputs = roofline.tensors(trace.codes("shapes").values[groups.shapes[costliest]])
        shapes = ", ".join(dict.fromkeys(inputs.split(", ")))  # those of attention are often equal
        device = roofline.described(trace, trace.codes("device").values[groups.device[costliest]]).name
        others = groups.ratio[known & ~slow & (groups.name == code)]
        best = message(" Its fastest shapes reach {best:ratio}.", best=float(others.max())) if len(others) else ""
        yield Candidate(
            message(
                "Kernels of {operator} take {time}. At the peak rates of {device}, FLOPs and bytes need "
                "{reached:ratio} of it. Costliest shapes: {shapes}.{best}",
                operator=operator, time=facts.of_step(spent), device=device, reached=reached, shapes=shapes, best=best,
            ),
            evidence={
                **facts.part("kernel", spent), "reached_ratio": reached, "shapes": shapes, "kernels": len(rows),
                "device": device,
            },
            rows=rows,
            method="none",
            ceiling_ns=round(spent * (1 - reached)),
            preconditions=(message("the peak rates of {device} are known", device=device),),
            fill={"operator": operator},
            words={"slow": "operator"},
            title=message("Find faster kernels for {operator}", operator=operator),
        )  # fmt: skip


def _judged(facts: RuleInput) -> BoolArray:
    """Return the mask of the kernels that count: of operators of ``_FAMILIES``, but not those that
    ``unfused-attention`` replaces."""
    trace = facts.trace
    names = trace.codes("op_name")
    judged = names.lookup(np.array([family(name) in _FAMILIES for name in names.values], np.bool_), False)
    mask = np.zeros(len(trace), np.bool_)
    mask[launched_within(trace, np.flatnonzero(judged))] = True
    chains = chain_rows(trace)[0]
    mask[launched_within(trace, np.concatenate([chains, backward_of(trace, chains)]))] = False
    return mask


def _of_earlier_architecture(facts: RuleInput) -> list[Candidate]:
    trace = facts.trace
    names, rows = trace.codes("name"), kernels(trace)
    written_for = np.array([architecture(name) for name in names.values], np.int64)
    known = {major for device in trace.meta.devices if (major := cuda_major(device)) is not None}
    known |= {_MAJOR["nvjet"] for name in names.values if name.startswith("nvjet")}
    device = max([min(known, default=0), *written_for.tolist()])  # kernels for a later architecture would not run
    if not known and (written_for >= device).all(where=written_for > 0):
        raise NotEvaluableError(message("the architecture of the device is not known"))
    rows = rows[names.lookup((written_for > 0) & (written_for < device), False)[rows] & facts.in_steps[rows]]
    spent = _spent_ns(facts, rows)
    if not facts.exceeds(spent, facts.thresholds.slow_share):
        return []
    total_ns = np.bincount(names.codes[rows], trace.ints("dur_ns")[rows], len(names.values))
    longest = [names.values[code] for code in np.argsort(-total_ns, kind="stable") if total_ns[code]]
    return [Candidate(
        message(
            "Kernels that are written for an earlier architecture than that of the device take {time}: {names}.",
            time=facts.of_step(spent), names=listed([*dict.fromkeys(_TEMPLATE.sub("", name) for name in longest)]),
        ),
        evidence={**facts.part("kernel", spent), "names": longest[:3], "kernels": len(rows)},
        rows=rows,
        method="none",
        ceiling_ns=round(spent),
        preconditions=(message("the kernel names show an architecture"),),
        title=message("Use kernels that are written for this device"),
    )]  # fmt: skip


def _spent_ns(facts: RuleInput, rows: IntArray) -> float:
    """Return the time of kernels in a usual step, by the step that launched them: the device may work on it later."""
    rows = facts.of_rank(rows)
    return facts.typical(facts.totals(rows, facts.trace.ints("dur_ns")[rows])[facts.mine])


def architecture(name: str) -> int:
    """Return the major compute capability that a product or attention with this kernel name is written for; 0 if the
    name does not show it."""
    found = _ARCHITECTURE.search(name.lower())
    if found is None or not (found["flash"] or multiplies(name.lower())):
        return 0
    return int(found["major"] or _MAJOR[found["name"] or found["flash"]])
