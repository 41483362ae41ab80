"""What does an advice save once others are followed? Replays of the others' edits, with and without its own.

Waiting shrinks when its cause does: one change may leave nothing to save for another, or uncover what another saves.
Said is only what differs much from what an advice saves by itself, and of which other advice it depends on where a
replay of the two together shows it. The replays are counted: however much advice there is, their number is bounded.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from perfkit_core.advice.facts import Facts
from perfkit_core.advice.model import Advice, After
from perfkit_core.advice.step_time import step_ns
from perfkit_core.replay.edits.contract import edited
from perfkit_core.replay.simulate import CyclicGraphError

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
