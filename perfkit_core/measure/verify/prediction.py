"""The prediction that a verification tests. It is read from ``perfkit advise --format json``, or given as numbers."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from perfkit_core.base.system.outside_text import decode_json, read_file
from perfkit_core.errors import UsageError


class _Prediction(msgspec.Struct, frozen=True):
    base_ns: int | float | None = None
    p10_ns: int | float | None = None
    p50_ns: int | float | None = None
    p90_ns: int | float | None = None
    saving_p10_ns: int | float | None = None
    saving_p90_ns: int | float | None = None
    replayed_ratio: int | float | None = None


class _Advice(msgspec.Struct, frozen=True):
    id: str
    rule: str | None = None
    version: int | None = None
    framework: str | None = None
    framework_version: str | None = None
    runtime: str | None = None
    prediction: _Prediction = _Prediction()


class _AdviceFile(msgspec.Struct, frozen=True):
    advice: tuple[_Advice, ...]


def one_of(prefix: str, ids: Sequence[str]) -> str:
    """Return the id that equals ``prefix``, or the only id that begins with it. Raises UsageError if there is none, or
    more than one."""
    matches = [name for name in ids if name == prefix] or [name for name in ids if prefix and name.startswith(prefix)]
    if len(matches) == 1:
        return matches[0]
    problem = "several ids begin with" if matches else "no advice has the id"
    choice = ", ".join(matches or ids)
    raise UsageError(f"{problem} {prefix!r}", f"choose one of {choice}" if choice else "there is no advice")


_NS = ("base_ns", "p10_ns", "p50_ns", "p90_ns")


@dataclass(frozen=True, slots=True)
class Predicted:
    """A prediction: the step time without the change (``base_ns``), and percentiles of the step time with the change.

    - ``advice``, ``rule``, ``framework`` and the last three fields: the origin of the prediction.
    - ``saving_p10_ns``, ``saving_p90_ns``: percentiles of the saving. If they are None, the saving is the base minus a
      percentile of the step time. This gives a wider interval, because the duration of equal steps varies too.
    - ``saving``, ``saving_low``, ``saving_high``: the median, the 10th and the 90th percentile of the saving, as shares
      of the base. Steps take longer with a profiler than without, so only shares can be compared."""

    base_ns: int
    p10_ns: int
    p50_ns: int
    p90_ns: int
    advice: str | None = None
    rule: str | None = None
    framework: str | None = None
    saving_p10_ns: int | None = None
    saving_p90_ns: int | None = None
    replayed_saving_ratio: float | None = None
    rule_version: int | None = None
    framework_version: str | None = None
    runtime: str | None = None

    @property
    def saving(self) -> float:
        return 1 - self.p50_ns / self.base_ns

    @property
    def saving_low(self) -> float:
        return saving_ratio(self.base_ns, self.saving_p10_ns, self.p90_ns)

    @property
    def saving_high(self) -> float:
        return saving_ratio(self.base_ns, self.saving_p90_ns, self.p10_ns)


def saving_ratio(base_ns: int, saving_ns: int | None, after_ns: int) -> float:
    """Return a saving as a share of the base. If ``saving_ns`` is None, the saving is the base minus ``after_ns``."""
    return 1 - after_ns / base_ns if saving_ns is None else saving_ns / base_ns


def from_numbers(text: str) -> Predicted:
    """Parse ``BASE,P10,P50,P90``, step times in ns. Raises UsageError."""
    parts = re.split(r"[,:]", text)
    if len(parts) != len(_NS) or not all(re.fullmatch(r"\s*\d{1,18}\s*", part) for part in parts):
        hint = "give BASE,P10,P50,P90: the step time without the change, and its percentiles with the change, in ns"
        raise UsageError(f"not a prediction: {text!r}", hint)
    base, low, mid, high = map(int, parts)
    return _checked(Predicted(base, low, mid, high))


def from_file(text: str) -> Predicted:
    """Read the prediction of a piece of advice from ``FILE:ID``. FILE is the output of ``perfkit advise --format
    json``, and ID is the id of the advice or the beginning of its id. Raises UsageError."""
    for colon in re.finditer(":", text):  # Paths and ids may contain colons.
        path, advice_id = Path(text[: colon.start()]), text[colon.end() :]
        if path.is_file():
            break
    else:
        hint = "give FILE:ID, and write FILE with perfkit advise SOURCE --format json -o FILE"
        raise UsageError(f"--advice {text!r}: no such file", hint)
    try:
        advices = decode_json(read_file(path), _AdviceFile).advice
    except (OSError, ValueError) as error:
        hint = "write FILE with perfkit advise SOURCE --format json -o FILE"
        raise UsageError(f"{path} contains no advice ({error})", hint) from None
    by_id = {advice.id: advice for advice in advices}
    advice = by_id[one_of(advice_id, list(by_id))]

    prediction = advice.prediction
    step = [round(number) for number in (getattr(prediction, name) for name in _NS) if number is not None]
    if len(step) < len(_NS):
        raise UsageError(f"the advice {advice.id} of {path} has no prediction", "verify it without --advice")
    base, low, mid, high = step
    low_saving, high_saving = prediction.saving_p10_ns, prediction.saving_p90_ns
    return _checked(Predicted(
        base, low, mid, high,
        advice=advice.id, rule=advice.rule, framework=advice.framework,
        saving_p10_ns=None if low_saving is None else round(low_saving),
        saving_p90_ns=None if high_saving is None else round(high_saving),
        replayed_saving_ratio=prediction.replayed_ratio, rule_version=advice.version,
        framework_version=advice.framework_version, runtime=advice.runtime,
    ))  # fmt: skip


def _checked(predicted: Predicted) -> Predicted:
    if predicted.base_ns <= 0 or not 0 <= predicted.p10_ns <= predicted.p50_ns <= predicted.p90_ns:
        numbers = ", ".join(f"{name[:-3]} {getattr(predicted, name)}" for name in _NS)
        raise UsageError(f"not a prediction: {numbers}", "the base must be above 0, and 0 ≤ p10 ≤ p50 ≤ p90")
    return predicted
