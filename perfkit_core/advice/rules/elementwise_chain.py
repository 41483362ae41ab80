"""Rule 16, elementwise-chain: each of several elementwise kernels reads from memory what the previous kernel wrote.
Detected: ``chain_kernels`` or more consecutive elementwise kernels on a stream, in one phase of one step. The sizes of
the tensors must fit: each kernel reads as many elements as the one before it. Without recorded sizes, only forward
passes count, because gradients of different layers follow each other in backward passes. Reductions and concatenations
belong to a chain, as in a normalisation or a rotary embedding.
Predicted: the step time if each chain becomes one fused kernel, whose duration follows from the memory traffic. The
chain's other kernels are gone, and so are the calls that launch only these kernels."""

from __future__ import annotations

import re
from typing import Final

import numpy as np

from perfkit_core.advice.calls import call_ns
from perfkit_core.advice.operators import backward_of, matching, operator_order, operators
from perfkit_core.advice.rule_input import Candidate, NotEvaluableError, RuleInput, assume
from perfkit_core.advice.transfers import elements
from perfkit_core.base.algorithms import arrays, nesting
from perfkit_core.base.language.messages import message
from perfkit_core.replay import device_work, transforms
from perfkit_core.trace.model.schema import BACKWARD, DATALOADER, KERNEL, OPTIMIZER

_OPERATORS: Final = {
    "relu", "gelu", "silu", "sigmoid", "tanh", "leaky_relu", "elu", "hardswish", "softplus", "dropout", "add",
    "subtract", "multiply", "divide", "pow", "sqrt", "rsqrt", "exp", "log", "abs", "negative", "sign", "floor", "round",
    "clip", "where", "compare", "logical", "sin", "cos", "erf", "reciprocal", "remainder", "maximum", "minimum",
    "square", "cast", "scale",
}  # fmt: skip
_REDUCTIONS: Final = {"mean", "var", "sum"}
_FUSED_ON_HOST: Final = transforms.Quantity(
    0.25, 0.5, 0.9, message("estimate: a fused operator reads and writes each tensor once")
)
_KERNELS: Final = re.compile(
    r"element_?wise|(?<!no)broadcast_?kernel|activation_?(grad_?)?kernel|dropout_?kernel", re.IGNORECASE
)
_NOT_ELEMENTWISE: Final = re.compile(
    r"softmax|norm|gemm|conv|multi_?tensor|embedding|index|gather|scatter|transpose|nccl|FillFunctor", re.IGNORECASE
)
_JOINS: Final = re.compile(r"reduce_kernel|CatArray", re.IGNORECASE)
"""Reductions and concatenations. A compiler fuses them with the elementwise kernels around them."""


def find(facts: RuleInput) -> list[Candidate]:
    if not facts.on_device:
        return _on_host(facts)
    trace, dur = facts.trace, facts.trace.ints("dur_ns")
    launch, parent = trace.ints("launched_by"), trace.ints("parent")
    if not trace.rows("kind", KERNEL).any():
        raise NotEvaluableError(message("no kernels were recorded"))
    kernels, chain = chained_kernels(facts)
    if not len(kernels):
        return []
    count = int(chain[-1]) + 1
    longest = np.zeros(len(chain), np.bool_)
    order = np.lexsort((-dur[kernels], chain))  # the longest kernel of each chain comes first
    longest[order[np.diff(chain[order], prepend=-1) != 0]] = True
    removed = kernels[~longest]
    # launches: outermost operators that launch only removed kernels; outside these, runtime calls that do the same
    all_work = nesting.sum_up(parent, np.bincount(launch[launch >= 0], minlength=len(trace)))
    removed_work = nesting.sum_up(parent, np.bincount(launch[removed], minlength=len(trace)))
    alone = trace.host & (removed_work > 0) & (all_work == removed_work)
    operator = nesting.outermost(parent, alone & operators(trace))[launch[removed]]
    launches = np.unique(np.where(operator >= 0, operator, launch[removed])[alone[launch[removed]]])
    host = facts.median_total(launches, dur[launches])
    device = facts.median_total(kernels, dur[kernels])
    if not facts.exceeds(max(host, device), facts.thresholds.chain_share):
        return []
    length = len(kernels) / count
    factor = transforms.Quantity(
        1.0, 1 + (length - 1) / 6, (length + 2) / 3, message("derived from the memory traffic of a fused chain")
    )
    # a fused kernel takes at most as long as all kernels of its chain
    chain_ns = np.zeros(count, np.int64)
    np.add.at(chain_ns, chain, dur[kernels])
    fused = transforms.Scale(kernels[longest], factor, below=False, host=False, most_ns=chain_ns[chain[longest]])
    spared = np.append(launches, removed)
    return [Candidate(
        facts.plural(
            "{count:count} chain {per_step}, with {kernels:count} elementwise kernels, takes {device:ns} on the "
            "device. A fused kernel would save launches that take {time} on the host.",
            "{count:count} chains {per_step}, with {kernels:count} elementwise kernels on average, take {device:ns} on "
            "the device. Fused kernels would save launches that take {time} on the host.",
            facts.median_total(kernels[np.diff(chain, prepend=-1) != 0]),
            kernels=length, device=device, time=facts.of_step(host),
        ),
        evidence={
            "chains": count, "kernels": len(kernels), "kernels_per_chain": round(length, 2),
            "chain_device_ns": round(device), "chain_host_ns": round(host), "step_ns": facts.step_ns,
        },
        rows=kernels,
        transforms=(transforms.Remove(launches), transforms.Remove(removed, below=False), fused),
        ceiling_ns=facts.ceiling_ns(facts.totals(spared, dur[spared])),
        preconditions=(
            message("the kernels follow each other on one stream, in one phase of one step"),
            message("memory bandwidth limits elementwise kernels"),
        ),
        vetoes=(message("optimizer kernels, reductions, and kernels that are already fused"),),
        assumptions=assume(longest_kernel_factor=factor),
        risks=(message("Consecutive kernels may be independent of each other; only dependent kernels are fused."),),
    )]  # fmt: skip


def _on_host(facts: RuleInput) -> list[Candidate]:
    """Return the advice for chains of operators on the host. Reductions count, because compilers fuse them, too."""
    trace, order = facts.trace, operator_order(facts.trace)
    canonical = trace.codes("op_name")
    names = np.array([name in _OPERATORS or name in _REDUCTIONS for name in canonical.values], np.bool_)
    row = order.row[(facts.in_steps & ~trace.rows("phase", BACKWARD, OPTIMIZER, DATALOADER))[order.row]]
    inside = canonical.lookup(names, False)[row]
    cut = (np.diff(trace.ints("step")[row]) != 0) | ~inside[1:] | ~inside[:-1]
    chain = np.cumsum(np.append(True, cut)[: len(row)])
    long = inside & (np.bincount(chain)[chain] >= facts.thresholds.chain_operators) if len(row) else inside
    rows = row[long]
    # operators on few elements take as long as their call, and fusing saves little
    rows = rows[trace.ints("dur_ns")[rows] > 2 * call_ns(facts)]
    if not len(rows):
        return []
    both = np.append(rows, backward_of(trace, rows))
    spent, chains = facts.mean_ns(both), len(np.unique(chain[long]))
    if not facts.exceeds(spent, facts.thresholds.chain_host_share):
        return []
    return [Candidate(
        facts.plural(
            "{count:count} chain {per_step} of elementwise operators reads and writes whole tensors again and again. "
            "This takes {time}.",
            "{count:count} chains {per_step} of elementwise operators read and write whole tensors again and again. "
            "This takes {time}.",
            facts.per_step(chains), time=facts.of_step(spent),
        ),
        evidence={"chains": chains, "operators": len(rows), **facts.part("chain", spent)},
        rows=rows,
        transforms=(transforms.Scale(both, _FUSED_ON_HOST),),
        ceiling_ns=round(spent),
        preconditions=(message("the operators follow each other in one phase of one step"),),
        vetoes=(message("operators on few elements"),),
        assumptions=assume(host_factor=_FUSED_ON_HOST),
        risks=(message("Consecutive operators may be independent of each other; only dependent ones are fused."),),
    )]  # fmt: skip


def chained_kernels(facts: RuleInput) -> tuple[arrays.IntArray, arrays.IntArray]:
    """Return the rows of the kernels in chains, sorted by stream and time, and the chain number of each kernel."""
    trace, launch = facts.trace, facts.trace.ints("launched_by")
    # a kernel is elementwise by its name or by the operator that launched it
    owner = np.append(nesting.nearest_on_path(trace.ints("parent"), operators(trace)), -1)[launch]
    canonical = matching(trace, "op_name", lambda name: name.removesuffix("_grad") in _OPERATORS)
    elementwise = matching(trace, "name", _KERNELS.search) | np.append(canonical, False)[owner]
    joins = matching(trace, "name", _JOINS.search)
    elementwise = (elementwise & ~matching(trace, "name", _NOT_ELEMENTWISE.search)) | joins
    # gradients that are added up belong to different parameters
    roots = nesting.outermost(trace.ints("parent"), operators(trace))
    adds = np.append(trace.rows("op_name", "accumulate_grad"), False)[np.append(roots, -1)[launch]]
    elementwise &= trace.rows("kind", KERNEL) & (launch >= 0) & ~adds
    work, lane = device_work.device_work(trace).row, device_work.device_work(trace).lane
    backward = trace.rows("phase", BACKWARD)[work]
    inside = (elementwise & ~trace.rows("phase", OPTIMIZER) & facts.in_steps)[work]
    inside &= ~backward | trace.has_values("shapes")
    begins = np.ones(len(work), np.bool_)
    begins[1:] = ~inside[:-1]
    for values in (lane, trace.ints("step")[work], trace.codes("phase").codes[work]):
        begins[1:] |= np.diff(values) != 0
    size = np.where(owner[work] >= 0, elements(trace, owner[work]), -1)
    less, more = np.minimum(size[1:], size[:-1]), np.maximum(size[1:], size[:-1])
    # forward, a kernel may also combine a tensor with a smaller one, such as its means
    fits = (less == more) | (~backward[1:] & ((less <= 0) | (more % np.maximum(less, 1) == 0)))
    begins[1:] |= ~fits
    stretch, kernels = np.cumsum(begins)[inside] - 1, work[inside]
    plain = np.bincount(stretch, ~joins[kernels], minlength=1)  # reductions alone are no chain
    long = plain[stretch] >= facts.thresholds.chain_kernels
    return kernels[long], np.unique(stretch[long], return_inverse=True)[1].astype(np.int64)
