"""Rules 6 and 7: the host stops and waits for a device within a step."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np

from perfkit_core import intervals, nesting
from perfkit_core.advice.evidence.transfers import Transfers, in_steps, operators_around, transfers, waiting_ns
from perfkit_core.advice.facts import Facts
from perfkit_core.advice.model import Candidate, NotEvaluableError
from perfkit_core.advice.rules.phrases import counted, each_period, part, part_of_step, verb
from perfkit_core.advice.wording import several
from perfkit_core.language import in_english, say
from perfkit_core.plugins.contracts import Rule
from perfkit_core.replay.edits.contract import Edit
from perfkit_core.replay.edits.removal import Remove
from perfkit_core.replay.edits.unblocking import Unblock
from perfkit_core.replay.sync_calls import DEVICE, sync_calls
from perfkit_core.schema import RUNTIME, SYNC
from perfkit_core.trace import IntArray

_LATER: Final = in_english("the value is known only later: code that decides by it must be able to wait")


def host_sync(facts: Facts) -> list[Candidate]:
    """Rule 6: results are brought to the host, and it waits for them."""
    facts.need_device()
    found = _awaited(facts)
    spent = _spent_ns(facts, found)
    if spent <= facts.thresholds.sync_share * facts.step_ns:
        return []
    return [_without(facts, found, spent, "")]


def host_sync_every(facts: Facts, every: float) -> Candidate:
    """What it would do to bring results to the host in the last one of so many steps, ``every`` of which must have been
    recorded. Raises NotEvaluableError."""
    facts.need_device()
    facts.need_steps()
    found = _awaited(facts)
    if not len(found) or every < 1:
        raise NotEvaluableError(
            say("nothing is brought to the host that it waits for") if every >= 1 else say("give 1 or more")
        )
    period = round(every)
    if not len(facts.steps.of_periods(facts.steps.recorded_ns, period)):
        steps = len(np.unique(facts.steps.number))
        raise NotEvaluableError(say("only {count} steps were recorded in a row: give {count} or less", count=steps))
    order = np.searchsorted(np.unique(facts.steps.number), facts.trace.ints("step")[found.row])
    gone = found.only((order + 1) % period != 0)
    if not len(gone):
        raise NotEvaluableError(say("every step would still bring its results to the host: give 2 or more"))
    how = say(", to be fetched in one of {every} steps", every=period)
    return replace(_without(facts, gone, _spent_ns(facts, gone), how), period=period)


def device_sync(facts: Facts) -> list[Candidate]:
    """Rule 7: the host waits until a device has done everything."""
    facts.need_device()
    facts.need_steps()
    rows = _of_device(facts)
    spent = facts.per_step(int(facts.trace.ints("dur_ns")[rows].sum()))
    waited = facts.per_step(int(waiting_ns(facts)[rows].sum()))
    if spent <= facts.thresholds.sync_share * facts.step_ns:
        return []
    names = facts.trace.codes("name")
    name = names.values[names.codes[rows[0]]]
    return [
        Candidate(
            say(
                "the host waits in {name} for {part} until the device has done everything, and gives it nothing "
                "to do meanwhile",
                name=name, part=part_of_step(facts, spent),
            ),
            evidence={
                "calls_per_step": facts.per_step(len(rows)), "call_ns": round(spent), "waiting_ns": round(waited),
                "step_ns": facts.step_ns,
            },
            rows=rows,
            edits=(Remove(rows, below=False),),
            ceiling_ns=overlap_ceiling_ns(facts, spent - waited),
            share_ns=round(spent),
            preconditions=(say("the call lies within a step"), say("work is launched after it")),
            risks=(say("times that the program takes itself need the call: take them in few steps"),),
            fill={"call": name},
        )
    ]  # fmt: skip


def overlap_ceiling_ns(facts: Facts, own_ns: float) -> int:
    """What no removed wait can save more of in a step: host and device together took no longer than one after the
    other, and will take no less than the longer of both; and ``own_ns``, what the removed calls took themselves."""
    activity, trace = facts.activity, facts.trace
    both = [np.concatenate(part) for part in zip(activity.compute, activity.copy, strict=True)]
    device = float(np.median(facts.within_steps(intervals.union(*both))))
    calls = trace.host & trace.rows("kind", SYNC, RUNTIME) & in_steps(facts)
    host = max(facts.step_ns - facts.per_step(int(waiting_ns(facts)[calls].sum())), 0)
    return round(min(host, device) + own_ns)


def _awaited(facts: Facts) -> Transfers:
    """Copies to the host that it waits for."""
    found = transfers(facts)
    trace = facts.trace
    over = np.where(found.sync >= 0, trace.end_ns[found.sync], trace.end_ns[found.call])
    return found.only(found.to_host & (over >= trace.end_ns[found.row]))


def _spent_ns(facts: Facts, found: Transfers) -> float:
    """In a step, on the host, in all that the copies need."""
    return facts.per_step(int(facts.trace.ints("dur_ns")[_outermost(facts, found)].sum()))


def _outermost(facts: Facts, found: Transfers) -> IntArray:
    """Rows of the copies on the host, none inside another."""
    chosen = np.zeros(len(facts.trace), np.bool_)
    chosen[found.everything] = True
    return np.flatnonzero(chosen & ~nesting.lies_in(facts.trace.ints("parent"), chosen))


def _without(facts: Facts, found: Transfers, spent: float, how: str) -> Candidate:
    names = operators_around(facts.trace, found.owner)
    large = found.bytes > facts.thresholds.tiny_bytes
    waited, each = round(facts.per_step(int(found.waited_ns.sum()))), facts.per_step(len(found))
    return Candidate(
        say(
            "the host fetches {counted} {period} ({names}) and waits for {verb}: {part}{how}",
            counted=counted(each, in_english("result"), in_english("results")),
            period=each_period(facts),
            names=several(names) or say("copies"),
            verb=verb(each, "it", "them"),
            part=part(facts, spent),
            how=how,
        ),
        evidence={
            "copies_per_step": facts.per_step(len(found)), "call_ns": round(spent), "waiting_ns": waited,
            "step_ns": facts.step_ns, "operators": names[:5],
        },
        rows=_outermost(facts, found),
        edits=_edits(found, large),
        ceiling_ns=overlap_ceiling_ns(facts, spent - waited),
        share_ns=round(spent),
        preconditions=(say("the copy goes to the host"), say("the host goes on only after it")),
        risks=(say(_LATER),),
        fill={"operator": names[0] if names else say("the copy")},
    )  # fmt: skip


def _edits(found: Transfers, large: np.ndarray) -> tuple[Edit, ...]:
    """Numbers are not fetched at all; what is large is still copied, but not waited for."""
    few, many = found.only(~large), found.only(large)
    edits: list[Edit] = [Remove(few.everything)] if len(few) else []
    if len(many):
        edits += [Unblock(many.call), Remove(many.sync[many.sync >= 0], below=False)]
    return tuple(edits)


def _of_device(facts: Facts) -> IntArray:
    """Synchronisations of a whole device within steps, but those after which nothing is launched any more: they end
    the recording."""
    trace = facts.trace
    calls, scope = sync_calls(trace)
    rows = calls[(scope == DEVICE) & trace.rows("kind", SYNC)[calls] & (trace.ints("step")[calls] >= 0)]
    launched_by = trace.ints("launched_by")
    last = trace.ints("start_ns")[launched_by[launched_by >= 0]].max(initial=np.iinfo(np.int64).min)
    going_on: IntArray = rows[trace.ints("start_ns")[rows] < last]
    return going_on


RULES: Final = (
    Rule("host-sync", 6, 1, "Do not wait for results in every step", host_sync, host_sync_every),
    Rule("device-sync", 7, 1, "Do not synchronise the device within a step", device_sync),
)
