"""Numbers that are not known exactly, and the three cases in which a replay is played."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from perfkit_core.language.messages import Text


class Case(Enum):
    """Which value of every uncertain number counts: that which makes the steps shortest, the likely one, the
    longest."""

    SHORT = "p10"
    LIKELY = "p50"
    LONG = "p90"


@dataclass(frozen=True, slots=True)
class Quantity:
    """A time in ns, a factor or a count as 10th, 50th and 90th percentile, low being what makes steps shorter, and
    where it comes from: "recorded", "calibrated on this machine", or a citation."""

    low: float
    mid: float
    high: float
    source: Text

    def at(self, case: Case) -> float:
        """The value in one case."""
        return {Case.SHORT: self.low, Case.LIKELY: self.mid, Case.LONG: self.high}[case]


Number = int | float | Quantity


def value(number: Number, case: Case) -> float:
    """A number in one case; one that is known is the same in all."""
    return number.at(case) if isinstance(number, Quantity) else number
