"""Rule 16: elementwise kernels one after the other, each reading from memory what the one before has written."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from perfkit_core import nesting
from perfkit_core.advice.facts import Facts
from perfkit_core.advice.model import Assumption, Candidate, NotEvaluableError
from perfkit_core.advice.rules import calls
from perfkit_core.advice.rules.phrases import counted, each_period, millis, number, period
from perfkit_core.language import in_english, say
from perfkit_core.plugins.contracts import Rule
from perfkit_core.replay.device_work import device_work
from perfkit_core.replay.edits.durations import Scale
from perfkit_core.replay.edits.removal import Remove
from perfkit_core.replay.quantity import Quantity
from perfkit_core.schema import KERNEL, OPERATOR, OPTIMIZER
from perfkit_core.trace import BoolArray, IntArray, Trace

_OPERATORS: Final = (
    "relu gelu silu sigmoid tanh leaky_relu elu hardswish softplus dropout add subtract multiply divide pow sqrt rsqrt "
    "exp log abs negative sign floor round clip where compare logical sin cos erf reciprocal remainder maximum minimum "
    "square cast scale"
)
_KERNELS: Final = r"element_?wise|(?<!no)broadcast_?kernel|activation_?(grad_?)?kernel|dropout_?kernel"
_OTHERS: Final = r"reduce|softmax|norm|gemm|conv|multi_?tensor|embedding|index|gather|scatter|cat|transpose|nccl"


@dataclass(frozen=True, slots=True)
class _Chains:
    """``kernels`` of all chains in the order of streams and time, ``first`` true for the first of each chain, ``kept``
    for the longest of each, arrays of shape (kernels,)."""

    kernels: IntArray
    first: BoolArray
    kept: BoolArray

    @property
    def count(self) -> int:
        """Number of chains."""
        return int(self.first.sum())


def chains(facts: Facts) -> list[Candidate]:
    """Rule 16: three or more elementwise kernels in a row on a stream, in one phase of one step."""
    facts.need_device()
    if not facts.trace.rows("kind", KERNEL).any():
        raise NotEvaluableError(say("no kernels were recorded"))
    found = _chains(facts)
    if not found.count:
        return []
    host, device = _costs(facts, found)
    least = facts.thresholds.chain_share * facts.step_ns
    return [_fused(facts, found, host, device)] if max(host, device) > least else []


def elementwise(trace: Trace) -> BoolArray:
    """True for kernels that compute each element on its own, by their own names or those of their operators."""
    launch = trace.ints("launched_by")
    parent = np.append(nesting.nearest_on_path(trace.ints("parent"), trace.host & trace.rows("kind", OPERATOR)), -1)
    owner = parent[launch]
    names = trace.codes("op_name")
    known = np.array([name.removesuffix("_grad") in _OPERATORS.split() for name in names.values], np.bool_)
    by_operator = np.append(names.lookup(known, False), False)[owner]
    kernel = trace.rows("kind", KERNEL) & (launch >= 0)
    found: BoolArray = kernel & (calls.named(trace, _KERNELS) | by_operator) & ~calls.named(trace, _OTHERS)
    return found


def _chains(facts: Facts) -> _Chains:
    trace = facts.trace
    rows = device_work(trace)
    work, lane = rows.row, rows.lane
    inside = elementwise(trace)[work] & ~trace.rows("phase", OPTIMIZER)[work]
    if facts.has_steps:
        inside &= trace.ints("step")[work] >= 0
    begins = np.ones(len(work), np.bool_)
    begins[1:] = ~inside[:-1]
    for values in (lane, trace.ints("step")[work], trace.codes("phase").codes[work]):
        begins[1:] |= np.diff(values) != 0
    chain = np.cumsum(begins)[inside] - 1
    kernels = work[inside]
    long = np.bincount(chain, minlength=1)[chain] >= facts.thresholds.chain_kernels
    chain, kernels = chain[long], kernels[long]
    return _Chains(kernels, np.diff(chain, prepend=-1) != 0, _longest(chain, trace.ints("dur_ns")[kernels]))


def _longest(chain: IntArray, dur_ns: IntArray) -> BoolArray:
    kept = np.zeros(len(chain), np.bool_)
    order = np.lexsort((-dur_ns, chain))
    kept[order[np.diff(chain[order], prepend=-1) != 0]] = True
    return kept


def _gone(trace: Trace, kernels: IntArray) -> IntArray:
    """Calls that do nothing but launch some kernels: the outermost operators with no other device work, or launches."""
    launch, parent = trace.ints("launched_by"), trace.ints("parent")
    work = launch[launch >= 0]
    every = nesting.sum_up(parent, np.bincount(work, minlength=len(trace)))
    ours = nesting.sum_up(parent, np.bincount(launch[kernels], minlength=len(trace)))
    alone = trace.host & (ours > 0) & (every == ours)
    whole = nesting.outermost(parent, alone & trace.rows("kind", OPERATOR))[launch[kernels]]
    return np.unique(np.where(whole >= 0, whole, launch[kernels])[alone[launch[kernels]]])


def _costs(facts: Facts, found: _Chains) -> tuple[float, float]:
    """Time of a step in the calls that would go, and in the kernels of chains."""
    trace, dur = facts.trace, facts.trace.ints("dur_ns")
    gone = _gone(trace, found.kernels[~found.kept])
    return (
        calls.typical(facts, gone, dur[gone]),
        calls.typical(facts, found.kernels, dur[found.kernels]),
    )


def _now(trace: Trace, found: _Chains) -> IntArray:
    """What all kernels of each chain take, in the order of those that are kept: one instead of them takes no more."""
    chain = np.cumsum(found.first) - 1
    total = np.zeros(found.count, np.int64)
    np.add.at(total, chain, trace.ints("dur_ns")[found.kernels])
    of_kept: IntArray = total[chain[found.kept]]
    return of_kept


def _fused(facts: Facts, found: _Chains, host: float, device: float) -> Candidate:
    trace = facts.trace
    kernels = len(found.kernels) / found.count
    bytes_left = Quantity(
        1.0, 1 + (kernels - 1) / 6, (kernels + 2) / 3, in_english("counted: reads and writes of a fused chain")
    )
    removed = found.kernels[~found.kept]
    chains_a_step = calls.typical(facts, found.kernels[found.first])
    gone = _gone(trace, removed)
    spared = np.append(gone, removed)
    return Candidate(
        say(
            "{counted} {period} of {kernels} elementwise kernels, where one kernel would do for each: {device} ms"
            " on the device, and {host} ms on the host for launches that it would spare; {period2} takes {step_ns} "
            "ms",
            counted=counted(chains_a_step, in_english("chain"), in_english("chains")),
            period=each_period(facts),
            kernels=number(round(kernels, 1)),
            device=millis(device),
            host=millis(host),
            period2=period(facts),
            step_ns=millis(facts.step_ns),
        ),
        evidence={
            "chains": found.count, "kernels": len(found.kernels), "kernels_per_chain": round(kernels, 2),
            "chain_device_ns": round(device), "chain_host_ns": round(host), "step_ns": facts.step_ns,
        },
        rows=found.kernels,
        edits=(
            Remove(gone),
            Remove(removed, below=False),
            Scale(found.kernels[found.kept], bytes_left, below=False, host=False, most_ns=_now(trace, found)),
        ),
        ceiling_ns=calls.without(facts, calls.per_step(facts, spared, trace.ints("dur_ns")[spared])),
        preconditions=(
            say("the kernels follow each other on one stream, in one phase of one step"),
            say("elementwise kernels take what reading and writing memory takes"),
        ),
        vetoes=(say("kernels of the optimizer, reductions and kernels that are fused already do not count"),),
        assumptions=(Assumption("longest_kernel_factor", bytes_left, bytes_left.source),),
        risks=(say("kernels in a row need not depend on each other; only those that do are fused"),),
    )  # fmt: skip


RULES: Final = (Rule("elementwise-chain", 16, 1, "Fuse elementwise operators", chains),)
