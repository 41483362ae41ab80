"""What does a measurement say of a change, and of the prediction?

============  =====================================================================================================
verified      the change costs less: the interval of the saving excludes 0, and the saving is above the noise floor
refuted       the same the other way; or neither, where a saving was predicted that is as surely not there: even the
              upper end of the measured interval, or the noise floor, is below the lower end of the prediction
cannot tell   all else: more rounds, or a quieter machine, may tell
============  =====================================================================================================

Whether the size was predicted well is a question of its own (``Fit``): one saving in five is outside of an interval
from p10 to p90 although all is well.
"""

from __future__ import annotations

from enum import Enum

from perfkit_core.verification.prediction import Predicted
from perfkit_core.verification.statistics import Measured


class Verdict(Enum):
    """The value is what people read."""

    VERIFIED = "verified"
    REFUTED = "refuted"
    CANNOT_TELL = "cannot tell"


class Fit(Enum):
    """Where the measured saving lies beside the predicted interval."""

    AS_PREDICTED = "within the predicted interval"
    LESS = "less than predicted"
    MORE = "more than predicted"


def verdict(found: Measured, predicted: Predicted | None = None) -> Verdict:
    """Of the change, whether or not something was predicted."""
    if found.better:
        return Verdict.VERIFIED
    if found.worse or (predicted is not None and _surely_missing(found, predicted)):
        return Verdict.REFUTED
    return Verdict.CANNOT_TELL


def fit(found: Measured, predicted: Predicted) -> Fit:
    """Of the measured saving, by shares of the base."""
    if found.saving < predicted.saving_low:
        return Fit.LESS
    return Fit.MORE if found.saving > predicted.saving_high else Fit.AS_PREDICTED


def saving_error(found: Measured, predicted: Predicted) -> float | None:
    """(predicted − measured) / measured saving; None where nothing was saved."""
    return (predicted.saving - found.saving) / abs(found.saving) if found.saving else None


def step_error(found: Measured, predicted: Predicted) -> float:
    """(predicted − measured) / measured step with the change, the prediction scaled to the measured base."""
    return (1 - predicted.saving) / (1 - found.saving) - 1


def _surely_missing(found: Measured, predicted: Predicted) -> bool:
    return max(found.saving_high, found.noise) < predicted.saving_low
