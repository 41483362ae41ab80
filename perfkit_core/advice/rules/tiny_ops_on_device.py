"""Rule 1, tiny-ops-on-device: the device runs operators on tiny tensors, and the host waits for their result.
Detected: operators directly before a copy of few bytes to the host. The inputs of the operators have at most
``tiny_elements`` elements. If shapes were not recorded, an operator counts if all its kernels have one thread block.
Predicted: the step time if the operators run on the host and the copies are gone."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

import numpy as np

from perfkit_core.advice import operators, transfers
from perfkit_core.advice.rule_input import Candidate, NotEvaluableError, RuleInput, assume, listed
from perfkit_core.base.algorithms.arrays import BoolArray, IntArray
from perfkit_core.base.language.messages import message
from perfkit_core.replay.transforms import Case, InCases, Insert, Move, Quantity, Remove, Transform
from perfkit_core.trace.model.schema import KERNEL
from perfkit_core.views.devices.kernels import parameters

_READ_NS: Final = Quantity(500, 1_000, 2_000, message("estimate: reading a number in host memory needs no copy"))
_VETOED: Final = (
    "random", "dropout", "all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce", "all_to_all", "send",
    "recv", "barrier", "pad", "interpolate", "tile",
)  # fmt: skip
"""Operators that keep state on the device, wait for other ranks, or make large results from small inputs."""
_CREATES: Final = ("fill", "arange", "assign", "one_hot", "triangular")
"""Operators that create their result from values on the host."""
_HALF: Final = re.compile(r"half|float16|bfloat16|float8|fp16|bf16|fp8", re.IGNORECASE)
"""Types of 16 or 8 bits, which are slow on hosts."""


@dataclass(frozen=True, slots=True)
class _Chains:
    """Operators on tiny tensors that run directly before the host fetches their result. All arrays have the shape
    (operators,). A position is an index into the outermost operators."""

    at: IntArray  # position of the operator
    fetched_by: IntArray  # position of the operator that fetches the result
    rooted: BoolArray  # whether the fetched result is made from values on the host


def find(facts: RuleInput) -> list[Candidate]:
    facts.need_device()
    trace, copies = facts.trace, transfers.transfers(facts)
    fetched = copies.only(copies.to_host & (copies.bytes <= facts.thresholds.tiny_bytes))
    if not len(fetched):
        return []
    order = transfers.outer_operators(facts, copies.owner)
    chains = _chains(facts, order, copies, fetched)
    if not len(chains.at):
        return []
    rows, spent = order.row[chains.at], facts.mean_ns(order.row[chains.at])
    # for each canonical operator: move its calls to the host, with the time that they take there
    canonical = trace.codes("op_name")
    codes, costs, changes = canonical.codes[rows], {}, list[Transform]()
    for code in np.unique(codes):
        name = canonical.values[code] if code >= 0 else "other"
        costs[f"{name}_on_host_ns"] = transfers.on_host_ns(facts, order, name)
        changes.append(Move(rows[codes == code], True, costs[f"{name}_on_host_ns"]))
    # Copies of values that the moved operators create are removed. Other copies are removed only in the best case.
    is_sure = np.isin(order.of[fetched.call], chains.fetched_by[chains.rooted])
    is_unsure = np.isin(order.of[fetched.call], chains.fetched_by[~chains.rooted])
    sure, unsure = fetched.only(is_sure), fetched.only(is_unsure)
    if len(sure):
        changes += [Remove(sure.everything), Insert(sure.owner, _READ_NS)]
    if len(unsure):
        changes.append(InCases(Remove(unsure.everything), (Case.SHORT,)))
    names, count = operators.names_of(trace, rows), facts.per_step(len(rows))
    copy_count = facts.per_step(int((is_sure | is_unsure).sum()))
    return [Candidate(
        facts.plural(
            "The device runs {count:count} operator {per_step} ({names}) on at most {elements} elements, and the host "
            "waits for the result (number of copies: {copies:count}). The operator takes {time}.",
            "The device runs {count:count} operators {per_step} ({names}) on at most {elements} elements each, and the "
            "host waits for the results (number of copies: {copies:count}). The operators take {time}.",
            count, elements=facts.thresholds.tiny_elements, names=listed(names), copies=copy_count,
            time=facts.of_step(spent),
        ),
        evidence={
            "operators_per_step": count, "operators": names[:5], "operators_ns": round(spent),
            "copies_per_step": copy_count, "copies_saved_per_step": facts.per_step(len(sure)), "step_ns": facts.step_ns,
        },
        rows=rows,
        transforms=tuple(changes),
        preconditions=(
            message("the operators read and write few elements"),
            message("the host waits for the result before it continues"),
        ),
        vetoes=(
            message("operators in half precision or lower"), message("operators that draw random numbers"),
            message("communication between ranks"),
        ),
        assumptions=assume(**costs),
        risks=(message("Device operators that read these numbers then need a copy of them."),),
        direction="to host",
        fill={"operator": names[0]},
    )]  # fmt: skip


def _chains(
    facts: RuleInput, order: transfers.OuterOperators, copies: transfers.Transfers, fetched: transfers.Transfers
) -> _Chains:
    """Return the operators on tiny tensors that run directly before the host fetches a result."""
    trace, count = facts.trace, len(order)
    fetches = np.zeros(count + 1, np.bool_)  # the last item means that no operator follows
    fetches[order.of[fetched.call]] = True
    fetches[count] = False
    small = _tiny(facts, order) & ~fetches[:count]
    # following: for each operator, the position of the next operator that is large or fetches a result
    breaks = np.where(small, count, np.arange(count))
    following = np.minimum.accumulate(breaks[::-1])[::-1]
    step = np.append(trace.ints("step")[order.row], -2)
    feeds = small & fetches[following]
    feeds &= (np.append(order.thread, -1)[following] == order.thread) & (step[following] == step[:count])
    creates = trace.rows("op_name", *_CREATES)[order.row]
    from_host = order.of[copies.call[~copies.to_host]]
    creates[from_host[from_host >= 0]] = True
    rooted = np.zeros(count + 1, np.bool_)
    rooted[following[feeds & creates]] = True
    works = np.zeros(count + 1, np.int64)
    np.add.at(works, following[feeds], order.works[feeds])
    at = np.flatnonzero(feeds & (works[following] > 0))
    return _Chains(at, following[at], rooted[following[at]])


def _tiny(facts: RuleInput, order: transfers.OuterOperators) -> BoolArray:
    trace, launched_by = facts.trace, facts.trace.ints("launched_by")
    # blocks: 1 if all kernels of an operator have one thread block, 0 if not, -1 if not recorded
    kernels = np.flatnonzero(trace.rows("kind", KERNEL) & (launched_by >= 0))
    at = order.of[launched_by[kernels]]
    kernels, at = kernels[at >= 0], at[at >= 0]
    grid = parameters(trace, kernels)["grid"].cat
    single = [all(part.strip() == "1" for part in text.split(",")) for text in grid.categories]
    recorded, is_single = np.asarray(grid.codes) >= 0, np.append(np.array(single, np.bool_), False)[grid.codes]
    blocks = np.where(order.kernels == 0, -1, 1)
    blocks[at[~recorded]] = -1
    blocks[at[recorded & ~is_single]] = 0
    count = transfers.elements(trace, order.row)
    if not (count >= 0).any() and not (blocks >= 0).any():
        raise NotEvaluableError(
            message("neither shapes nor grid sizes of kernels were recorded"),
            message("record shapes (record_shapes=True)"),
        )
    few = np.where(count >= 0, count <= facts.thresholds.tiny_elements, blocks == 1)
    few |= (count < 0) & (order.works == 0)
    vetoed = trace.rows("op_name", *_VETOED)[order.row] | operators.matching(trace, "dtypes", _HALF.search)[order.row]
    tiny: BoolArray = few & (blocks != 0) & ~vetoed
    return tiny
