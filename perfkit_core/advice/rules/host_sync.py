"""Rule 6, host-sync: the host fetches results from the device and waits for them.
Detected: copies to the host that end before the host continues. The host waits for them either in the call that
launches the copy or in a later synchronisation.
Predicted: the step time without small copies, and with large copies that do not wait. With ``--what-if host-sync=N``,
only every N-th step fetches results. A wait that no recorded device work explains remains. For an inference nothing is
predicted, because it must fetch its results."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from perfkit_core.advice import operators, transfers
from perfkit_core.advice.rule_input import Candidate, NotEvaluableError, RuleInput, listed
from perfkit_core.base.algorithms.arrays import IntArray
from perfkit_core.base.language.messages import Text, message, plural
from perfkit_core.replay.transforms import Insert, Remove, Transform, Unblock
from perfkit_core.trace.model.schema import BACKWARD, OPTIMIZER
from perfkit_core.trace.model.trace import Trace
from perfkit_core.views.select import marked


def find(facts: RuleInput) -> list[Candidate]:
    facts.need_device()
    copies = _awaited(facts)
    if not facts.exceeds(facts.mean_ns(_on_host(facts.trace, copies)), facts.thresholds.sync_share):
        return []
    return [_not_fetched(facts, copies, "")]


def what_if(facts: RuleInput, every: float) -> Candidate:
    """Return the advice to fetch results only in every N-th step (N is ``every``). Raises NotEvaluableError if this
    changes nothing, or if fewer consecutive steps than ``every`` were recorded."""
    facts.need_device()
    facts.need_steps()
    copies = _awaited(facts)
    if every < 1:
        raise NotEvaluableError(message("host-sync needs a step count"), message("give 1 or more"))
    if not len(copies):
        raise NotEvaluableError(message("the host does not wait for any result"))
    period = round(every)
    numbers = np.unique(facts.steps.number)
    if not len(facts.steps.of_periods(facts.steps.recorded_ns, period)):
        raise NotEvaluableError(
            plural("only {n} step was recorded", "only {n} consecutive steps were recorded", len(numbers)),
            message("give {n} or less", n=len(numbers)),
        )
    order = np.searchsorted(numbers, facts.trace.ints("step")[copies.row])
    removed = copies.only((order + 1) % period != 0)
    if not len(removed):
        raise NotEvaluableError(message("every step would still fetch its results"), message("give 2 or more"))
    how = message(" One step in every {every} still fetches results.", every=period)
    return replace(_not_fetched(facts, removed, how), period=period)


def _awaited(facts: RuleInput) -> transfers.Transfers:
    copies, end_ns = transfers.transfers(facts), facts.trace.end_ns
    returned = np.where(copies.sync >= 0, end_ns[copies.sync], end_ns[copies.call])
    return copies.only(copies.to_host & (returned >= end_ns[copies.row]))


def _on_host(trace: Trace, copies: transfers.Transfers) -> IntArray:
    return operators.outermost(trace, marked(trace, copies.everything))


def _not_fetched(facts: RuleInput, copies: transfers.Transfers, how: Text) -> Candidate:
    trace, rows, operator = facts.trace, _on_host(facts.trace, copies), operators.operators(facts.trace)
    spent, waited = facts.mean_ns(rows), round(facts.per_step(int(copies.waited_ns.sum())))
    around = copies.owner.copy()  # the loop moves up to the innermost operator around each copy
    for _ in range(transfers.NESTED):
        around = np.where((around >= 0) & ~operator[around], trace.ints("parent")[around], around)
    names, count = operators.names_of(trace, around[(around >= 0) & operator[around]]), facts.per_step(len(copies))
    large = copies.bytes > facts.thresholds.tiny_bytes
    few, many = copies.only(~large), copies.only(large)
    changes: list[Transform] = [Remove(few.everything)] if len(few) else []
    if len(many):
        changes += [Unblock(many.call), Remove(many.syncs, below=False)]
    waits = np.unique(np.append(copies.call, copies.syncs))
    unexplained = transfers.unexplained_ns(facts, waits)
    for_other = facts.per_step(int(unexplained.sum()))
    if for_other:
        changes.append(Insert(waits, unexplained))
        how = message(
            "{how} For {time:ns} of it, no recorded device work explains the wait, which would remain.", how=how,
            time=for_other,
        )  # fmt: skip
    infers = not trace.rows("phase", BACKWARD, OPTIMIZER).any() and trace.has_values("phase")
    return Candidate(
        facts.plural(
            "The host fetches {count:count} result {per_step} ({names}) and waits for it. This takes {time}.{how}",
            "The host fetches {count:count} results {per_step} ({names}) and waits for them. This takes {time}.{how}",
            count, names=listed(names) if names else message("copies"), time=facts.of_step(spent), how=how,
        ),
        evidence={
            "copies_per_step": count, "call_ns": round(spent), "waiting_ns": waited,
            "unexplained_ns": round(for_other), "step_ns": facts.step_ns, "operators": names[:5],
        },
        rows=rows,
        method="none" if infers else "replay",
        transforms=tuple(changes),
        ceiling_ns=transfers.wait_ceiling_ns(facts, spent - waited),
        share_ns=round(spent),
        preconditions=(message("the copy goes to the host"), message("the host continues only after the copy")),
        risks=(message("The value is available later: code that branches on it must tolerate the delay."),),
        fill={"operator": names[0] if names else "the copy"},
        words={"training": "no"} if infers else {},
    )  # fmt: skip
