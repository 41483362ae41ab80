"""What the outcomes of earlier predictions say about the next one.

A replay states what a change saves if its uncertain factors have certain values. How far a rule's replays were off is
learned from a ledger of measured pairs, which perfkit ships, and from the user's own measurements. Savings are compared
as speedups on a logarithmic scale, on which savings of changes add up and a loss is as far from 0 as the same gain:

    gain = −log(1 − saving),   miss = (measured gain − replayed gain) / (|replayed gain| + LEAST)

The misses of a rule have a normal distribution with unknown mean and variance (normal-inverse-gamma prior): without
outcomes, the mean miss is 0 and its spread is that of the replay's own interval, or ``_SPREADS[0]`` if that is larger:
the replay knows what its factors may be, but not what it leaves out. Each outcome of the rule moves the
prediction and narrows or widens the interval. The predictive distribution is Student's t, so few outcomes mean a wide
interval. It ends at 0 if neither the replay nor any outcome is a loss."""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from statistics import NormalDist
from typing import Final

import msgspec
import numpy as np

from perfkit_core.base.system.paths import user_folder
from perfkit_core.errors import SourceError
from perfkit_core.measure.verify import ledger
from perfkit_core.measure.verify.ledger import Record

LEAST: Final = 0.02
"""Gain that is added to the replayed gain, so that a miss stays finite."""
_MEAN_WEIGHT: Final = 1.0
"""Weight of the prior mean miss of 0, in outcomes."""
_SPREAD_WEIGHT: Final = 3.0
"""Weight of the prior spread, in outcomes."""
_SPREADS: Final = 0.15, 1.0
"""Limits of the prior spread. Replays are not more exact than the lower limit, and the upper limit is a large miss."""
_WORST: Final = 1.5
"""A larger miss counts as this one. Its cause is usually not the rule, but memory or other processes."""
_TAIL: Final = 0.9
"""The interval ends at this quantile of the predictive distribution, and at the opposite one."""

Saving = tuple[float, float, float]
"""p10, p50 and p90 of a saving, as shares of the step time."""


@dataclass(frozen=True, slots=True)
class Experience:
    """The misses of the predictions of one rule, on a host or on a device, whether a fix has ever cost time, and the
    least spread of a prediction without outcomes."""

    misses: tuple[float, ...] = ()
    harmful: bool = False
    least_spread: float = 0.0

    def adjusted(self, replayed: Saving) -> Saving:
        """Return the saving that is expected if the replay says ``replayed``. Without outcomes, only its interval may
        become wider, because of ``least_spread``."""
        low, mid, high = map(gain, replayed)
        scale, count = abs(mid) + LEAST, len(self.misses)
        if not count:
            wide = _quantile(_SPREAD_WEIGHT) * self.least_spread * math.sqrt(1 + 1 / _MEAN_WEIGHT) * scale
            least = max(mid - wide, min(low, 0.0))
            return min(replayed[0], saving(least)), replayed[1], max(replayed[2], saving(mid + wide))
        prior = min(max((high - low) / (2 * NormalDist().inv_cdf(_TAIL)) / scale, _SPREADS[0]), _SPREADS[1])
        misses = np.array(self.misses)
        mean = misses.sum() / (_MEAN_WEIGHT + count)
        squares = float(((misses - misses.mean()) ** 2).sum())
        squares += _MEAN_WEIGHT * count / (_MEAN_WEIGHT + count) * float(misses.mean()) ** 2
        freedom = _SPREAD_WEIGHT + count
        variance = (_SPREAD_WEIGHT * prior**2 + squares) / freedom
        wide = _quantile(freedom) * math.sqrt(variance * (1 + 1 / (_MEAN_WEIGHT + count)))
        least = min(low, 0.0) if not self.harmful else -math.inf
        low, mid, high = (max(mid + scale * (mean + end), least) for end in (-wide, 0.0, wide))
        return saving(low), saving(mid), saving(high)


def gain(saved: float) -> float:
    """Return the logarithm of the speedup of a saving. A saving of 1 would be an infinite speedup."""
    return -math.log(max(1 - saved, 1e-3))


def saving(gained: float) -> float:
    return 1 - math.exp(-gained)


def miss(record: Record) -> float | None:
    """Return by how much the replay of a measured prediction was off, None if the record has no replay or outcome."""
    replayed, measured = record.replayed_saving_ratio, record.saving_ratio
    if replayed is None or measured is None:
        return None
    error = (gain(measured) - gain(replayed)) / (abs(gain(replayed)) + LEAST)
    return min(max(error, -_WORST), _WORST)


def experience(records: Iterable[Record], rule: str, version: int, runtime: str) -> Experience:
    """Return the experience with a rule's predictions. Outcomes of another version of the rule and on another kind of
    device do not count, because the misses depend on them."""
    same = [entry for entry in records if (entry.rule, entry.rule_version, entry.runtime) == (rule, version, runtime)]
    harmful = any(entry.saving_high_ratio is not None and entry.saving_high_ratio < 0 for entry in same)
    return Experience(tuple(missed for entry in same if (missed := miss(entry)) is not None), harmful, _SPREADS[0])


@functools.cache
def outcomes() -> tuple[Record, ...]:
    """Return the shipped outcomes, followed by the user's own. Unreadable lines of the user's ledger are ignored."""
    shipped = files("perfkit_core.advice").joinpath("outcomes.jsonl").read_bytes().splitlines()
    records = [msgspec.json.decode(line, type=Record) for line in shipped if line.strip()]
    with contextlib.suppress(SourceError, OSError):
        records += ledger.read(own_ledger()) if own_ledger().exists() else []
    return tuple(records)


def own_ledger() -> Path:
    """Return the ledger of this user, to which ``perfkit verify`` appends."""
    return user_folder("XDG_STATE_HOME", ".local/state") / "outcomes.jsonl"


def _quantile(freedom: float) -> float:
    """Return the quantile ``_TAIL`` of Student's t distribution (Hill, Communications of the ACM 13, 1970, to third
    order: errors below 1% from 3 degrees of freedom)."""
    z = NormalDist().inv_cdf(_TAIL)
    terms: Sequence[float] = (
        z,
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
    )
    return sum(term / freedom**power for power, term in enumerate(terms))
