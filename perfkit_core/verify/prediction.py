"""The prediction of a change, read from a file that ``perfkit advise --format json`` wrote, or from numbers."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from perfkit_core.errors import UsageError


def one_of(wanted: str, known: Sequence[str]) -> str:
    """Return the id that equals ``wanted`` or begins with it. Raises UsageError if there is none, or several."""
    matches = [name for name in known if name == wanted] or [name for name in known if name.startswith(wanted)]
    if len(matches) == 1:
        return matches[0]
    problem = "several ids begin with" if matches else "no advice has the id"
    raise UsageError(
        f"{problem} {wanted!r}", f"choose among {', '.join(matches or known) or 'none: there is no advice'}"
    )


_NS = ("base_ns", "p10_ns", "p50_ns", "p90_ns")


@dataclass(frozen=True, slots=True)
class Predicted:
    """A predicted step time in ns: without the change (base), and percentiles with it. ``advice``, ``rule``,
    ``framework``: where the prediction comes from. ``saving_p10_ns`` and ``saving_p90_ns``: percentiles of the saving;
    None if only those of the step are known, which include the spread of equal steps. Measurements are compared as
    shares of the base, because a step under a profiler is longer than the measured one."""

    base_ns: int
    p10_ns: int
    p50_ns: int
    p90_ns: int
    advice: str | None = None
    rule: str | None = None
    framework: str | None = None
    saving_p10_ns: int | None = None
    saving_p90_ns: int | None = None

    @property
    def saving(self) -> float:
        """The median saving, as a share of the base."""
        return 1 - self.p50_ns / self.base_ns

    @property
    def saving_low(self) -> float:
        """The p10 of the saving, as a share of the base."""
        return saving_ratio(self.base_ns, self.saving_p10_ns, self.p90_ns)

    @property
    def saving_high(self) -> float:
        """The p90 of the saving, as a share of the base."""
        return saving_ratio(self.base_ns, self.saving_p90_ns, self.p10_ns)


def saving_ratio(base_ns: int, saving_ns: int | None, after_ns: int) -> float:
    """Return a saving as a share of the base; from the step with the change if the saving is not known."""
    return 1 - after_ns / base_ns if saving_ns is None else saving_ns / base_ns


def from_numbers(text: str) -> Predicted:
    """Read ``BASE,P10,P50,P90`` in ns. Raises UsageError."""
    parts = re.split(r"[,:]", text)
    if len(parts) != len(_NS) or not all(re.fullmatch(r"\s*\d+\s*", part) for part in parts):
        raise UsageError(
            f"not a prediction: {text!r}", "give the base and p10, p50, p90 of the step in ns: 8000000,4,5,6"
        )
    base, low, mid, high = map(int, parts)
    return _checked(Predicted(base, low, mid, high))


def from_file(text: str) -> Predicted:
    """Read ``FILE:ID``: an advice of a file that ``perfkit advise --format json`` wrote, by the start of its id. Raises
    UsageError."""
    for colon in re.finditer(":", text):  # ids and paths may have colons of their own
        path, wanted = Path(text[: colon.start()]), text[colon.end() :]
        if path.is_file():
            break
    else:
        hint = "give FILE:ID, FILE from perfkit advise --format json -o FILE"
        raise UsageError(f"--advice {text!r}: no such file", hint)
    try:
        advices = json.loads(path.read_text(encoding="utf-8"))["advice"]
    except (OSError, ValueError, KeyError, TypeError):
        advices = None
    if not isinstance(advices, list) or not all(isinstance(advice, dict) for advice in advices):
        raise UsageError(f"{path} holds no advice", "write it with perfkit advise SOURCE --format json -o FILE")
    by_id = {str(advice.get("id")): advice for advice in advices}
    advice = by_id[one_of(wanted, list(by_id))]

    prediction = advice.get("prediction") or {}
    step = [prediction.get(name) for name in _NS]
    if not all(isinstance(number, int | float) for number in step):
        raise UsageError(f"the advice {advice.get('id')} of {path} has no prediction", "verify it without --advice")
    saving = [prediction.get(name) for name in ("saving_p10_ns", "saving_p90_ns")]
    names = (advice.get(name) for name in ("id", "rule", "framework"))
    base, low, mid, high = (round(number) for number in step if number is not None)
    return _checked(
        Predicted(base, low, mid, high, *names, *(round(number) for number in saving if number is not None))
    )


def _checked(predicted: Predicted) -> Predicted:
    if predicted.base_ns <= 0 or not 0 <= predicted.p10_ns <= predicted.p50_ns <= predicted.p90_ns:
        numbers = ", ".join(f"{name[:-3]} {getattr(predicted, name)}" for name in _NS)
        raise UsageError(f"not a prediction: {numbers}", "the base must be above 0, and 0 ≤ p10 ≤ p50 ≤ p90")
    return predicted
