"""What do several advice save together? Replayed, not added: what two of them would save only counts once."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from perfkit_core.advice.afterwards import after
from perfkit_core.advice.facts import Facts
from perfkit_core.advice.model import Advice, After, Candidate, Prediction
from perfkit_core.advice.predict import predict
from perfkit_core.advice.step_time import step_ns
from perfkit_core.language import Text, message
from perfkit_core.replay.edits.contract import Edit, edited
from perfkit_core.replay.simulate import CyclicGraphError


@dataclass(frozen=True, slots=True)
class Combined:
    """The prediction of all of ``together`` (ids); ``excluded`` says of the others why they are not (id → reason),
    ``after`` of which advice the saving changes much once others are followed."""

    prediction: Prediction | None = None
    together: tuple[str, ...] = ()
    excluded: Mapping[str, Text] = field(default_factory=dict)
    after: Mapping[str, After] = field(default_factory=dict)


def combined(facts: Facts, advice: Sequence[Advice], without_saving: Sequence[Advice] = ()) -> Combined:
    """All advice that do not exclude each other, replayed at once. ``advice``: the largest saving first; of two that
    exclude each other, or of which the second costs time beside the first, the first stays. ``without_saving`` is asked
    what it saves after them."""
    excluded: dict[str, Text] = {}
    taken: list[Advice] = []
    for one in advice:
        reason = _why_not(one, taken)
        if reason is None:
            taken.append(one)
        else:
            excluded[one.id] = reason
    found = _replayed(facts, taken, excluded)
    taken = [one for one in taken if one.id in found.together]
    others = [one for one in without_saving if one.candidate.edits and _why_not(one, taken) is None]
    return replace(found, after=after(facts, taken, others))


def _why_not(one: Advice, taken: Sequence[Advice]) -> Text | None:
    if one.prediction.saving_ns is None:
        return message("how much it saves is not known")
    for other in taken:
        if other.rule in one.candidate.conflicts or one.rule in other.candidate.conflicts:
            return message("{id} takes its place", id=other.id)
    if one.prediction.method != "replay":
        return message("its saving is no replay ({method})", method=one.prediction.method)
    return None


def _replayed(facts: Facts, taken: Sequence[Advice], excluded: dict[str, Text]) -> Combined:
    """What cannot be changed together with the larger savings, or costs time beside them, stays out and says so."""
    kept: list[Advice] = []
    least_ns = math.inf
    for one in taken:
        try:
            step = _step_ns(facts, [*kept, one])
        except CyclicGraphError:
            excluded[one.id] = message("it cannot be replayed together with the others")
            continue
        if step > least_ns:
            excluded[one.id] = message("together with the others it costs {time:ns}", time=step - least_ns)
        else:
            least_ns = step
            kept.append(one)
    if not kept:
        return Combined(excluded=excluded)
    found = predict(facts, Candidate("all advice that do not exclude each other", {}, edits=_edits(kept)))
    whole = replace(found, ceiling_ns=None)  # that of one kind of change; these are of many
    return Combined(whole, tuple(one.id for one in kept), excluded)


def _step_ns(facts: Facts, advice: Sequence[Advice]) -> float:
    """Time of a step with all of them. Raises CyclicGraphError."""
    if len(advice) == 1 and advice[0].prediction.p50_ns is not None:
        return advice[0].prediction.p50_ns
    return step_ns(facts, edited(facts.replay, _edits(advice)))


def _edits(advice: Sequence[Advice]) -> tuple[Edit, ...]:
    return tuple(edit for one in advice for edit in one.candidate.edits)
