"""What do several advice save together? Replayed, not added: what two of them would save only counts once.

What does an advice save once others are followed? Replays of the others' edits, with and without its own.

Waiting shrinks when its cause does: one change may leave nothing to save for another, or uncover what another saves.
Said is only what differs much from what an advice saves by itself, and of which other advice it depends on where a
replay of the two together shows it. The replays are counted: however much advice there is, their number is bounded.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from perfkit_core.advice.facts import Facts
from perfkit_core.advice.model import Advice, After, Candidate, Prediction
from perfkit_core.advice.predict import predict, step_ns
from perfkit_core.language.messages import Text, message
from perfkit_core.replay.simulate import CyclicGraphError
from perfkit_core.replay.transforms.transform import Edit, edited

REPLAYS: Final = 12
_FOR_REASONS: Final = 4
"""Of them, what is left for telling which of the others it is."""
_LITTLE: Final = 0.25
"""A saving of which less than this share remains is as good as gone."""
_MUCH: Final = 2.0
"""How many times its own saving an advice must save after others for that to be told."""
_MOST_OF_IT: Final = 0.75
"""One of the others that explains this share of the difference explains it."""


def after(facts: Facts, together: Sequence[Advice], others: Sequence[Advice]) -> dict[str, After]:
    """For advice (id) whose saving changes much: ``together`` can be followed at once, the largest saving first;
    ``others`` save nothing by themselves, and could be followed, too."""
    if not together:
        return {}
    played = _Played(facts, REPLAYS - _FOR_REASONS)
    found = [*_gains(played, together, others), *_left(played, together)]
    played.left += _FOR_REASONS
    return {one.id: _explained(played, one, rest, saving) for one, rest, saving in found}


@dataclass(slots=True)
class _Played:
    """Times of a step with some advice followed, each played once; ``left``: how many more replays there may be."""

    facts: Facts
    left: int
    known: dict[frozenset[str], float | None] = field(default_factory=dict)

    def step_ns(self, advice: Sequence[Advice]) -> float | None:
        """None where the edits cannot be made at once, or no replay is left."""
        if len(advice) == 1 and advice[0].prediction.p50_ns is not None:
            return float(advice[0].prediction.p50_ns)
        key = frozenset(one.id for one in advice)
        if key not in self.known and self.left > 0:
            self.left -= 1
            self.known[key] = self._replayed(advice)
        return self.known.get(key)

    def saving_ns(self, one: Advice, rest: Sequence[Advice]) -> int | None:
        """What ``one`` saves once the rest is followed."""
        without, with_it = self.step_ns(rest), self.step_ns([*rest, one])
        return None if without is None or with_it is None else round(without - with_it)

    def _replayed(self, advice: Sequence[Advice]) -> float | None:
        facts = self.facts
        try:
            return step_ns(facts, edited(facts.replay, [edit for one in advice for edit in one.candidate.edits]))
        except CyclicGraphError:
            return None


_Found = tuple[Advice, Sequence[Advice], int]


def _gains(played: _Played, together: Sequence[Advice], others: Sequence[Advice]) -> Iterator[_Found]:
    """What saves nothing, or little, by itself, and something after all the rest."""
    worth = played.facts.thresholds.least_saving * played.facts.step_ns
    for one in others:
        saving = played.saving_ns(one, together)
        if saving is not None and saving > max(worth, _MUCH * (one.prediction.saving_ns or 0)):
            yield one, together, saving


def _left(played: _Played, together: Sequence[Advice]) -> Iterator[_Found]:
    """What saves much less, or much more, after all the rest than by itself."""
    for one in together:
        rest = [other for other in together if other is not one]
        saving, own = played.saving_ns(one, rest) if rest else None, one.prediction.saving_ns or 0
        if saving is not None and not _LITTLE * own <= saving <= _MUCH * own:
            yield one, rest, saving


def _explained(played: _Played, one: Advice, rest: Sequence[Advice], saving: int) -> After:
    """After the one of the rest that makes most of the difference, or after all of them."""
    own = one.prediction.saving_ns or 0
    for other in rest:
        alone = played.saving_ns(one, [other])
        if alone is not None and _as_much(alone - own, saving - own):
            return After((other.id,), max(alone, 0))
    return After(tuple(other.id for other in rest), max(saving, 0))


def _as_much(difference: int, wanted: int) -> bool:
    return abs(difference) >= _MOST_OF_IT * abs(wanted) and (difference > 0) == (wanted > 0)


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
