"""What was predicted of a change, read from what ``perfkit advise --format json`` wrote, or from numbers."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perfkit_core.errors import UsageError


def one_of(wanted: str, known: Sequence[str]) -> str:
    """The id that is meant by itself or by its beginning. Raises UsageError where that is none, or several."""
    found = [name for name in known if name == wanted] or [name for name in known if name.startswith(wanted)]
    if len(found) == 1:
        return found[0]
    choices = ", ".join(found or known) or "there is none"
    raise UsageError(f"{'several advice begin with' if found else 'no advice'} {wanted!r}", f"choose among {choices}")


_NS = ("base_ns", "p10_ns", "p50_ns", "p90_ns")


@dataclass(frozen=True, slots=True)
class Predicted:
    """Time of a step in ns: when it was predicted (base), and with the change as percentiles; of which advice, by
    which rule, of which framework; and percentiles of the saving, None where only those of the step are known. Steps of
    equal trainings differ, before as after: that is in the interval of the step, and not in that of the saving.

    What is compared with a measurement is shares of the base: a step under a profiler is longer than the one measured.
    """

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
        """The likely saving, as a share of the base."""
        return 1 - self.p50_ns / self.base_ns

    @property
    def saving_low(self) -> float:
        """The saving that nine in ten exceed."""
        return saving_ratio(self.base_ns, self.saving_p10_ns, self.p90_ns)

    @property
    def saving_high(self) -> float:
        """The saving that one in ten exceeds."""
        return saving_ratio(self.base_ns, self.saving_p90_ns, self.p10_ns)


def saving_ratio(base_ns: int, saving_ns: int | None, after_ns: int) -> float:
    """A saving as a share of the base, by the step afterwards where the saving itself is not known."""
    return 1 - after_ns / base_ns if saving_ns is None else saving_ns / base_ns


def from_numbers(text: str) -> Predicted:
    """``BASE,P10,P50,P90`` in ns. Raises UsageError."""
    parts = re.split(r"[,:]", text)
    if len(parts) != len(_NS) or not all(re.fullmatch(r"\s*\d+\s*", part) for part in parts):
        raise UsageError(f"not a prediction: {text!r}", "give the step in ns now, and p10, p50, p90: 8000000,4,5,6")
    base, low, mid, high = map(int, parts)
    return _checked(Predicted(base, low, mid, high))


def from_file(text: str) -> Predicted:
    """``FILE:ID``: an advice of a file that ``perfkit advise --format json`` wrote; the beginning of its id is enough.

    Raises UsageError.
    """

    path, wanted = _split(text)
    known = {str(advice.get("id")): advice for advice in _advices(path)}
    return _predicted(path, known[one_of(wanted, list(known))])


def _split(text: str) -> tuple[Path, str]:
    """At the colon before which a file is found; ids and paths may have colons of their own."""
    for found in re.finditer(":", text):
        path = Path(text[: found.start()])
        if path.is_file():
            return path, text[found.end() :]
    raise UsageError(f"--advice {text!r}: no such file", "give FILE:ID, FILE from perfkit advise --format json -o FILE")


def _advices(path: Path) -> list[Mapping[str, Any]]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))["advice"]
    except (OSError, ValueError, KeyError, TypeError):
        found = None
    if not isinstance(found, list) or not all(isinstance(advice, dict) for advice in found):
        raise UsageError(f"{path} holds no advice", "write it with perfkit advise SOURCE --format json -o FILE")
    return found


def _predicted(path: Path, advice: Mapping[str, Any]) -> Predicted:
    numbers = [(advice.get("prediction") or {}).get(name) for name in _NS]
    if not all(isinstance(number, (int, float)) for number in numbers):
        raise UsageError(f"the advice {advice.get('id')} of {path} predicts no number", "verify it without --advice")
    base, low, mid, high = (round(number) for number in numbers if number is not None)
    saving = [advice["prediction"].get(name) for name in ("saving_p10_ns", "saving_p90_ns")]
    known = [round(one) for one in saving if isinstance(one, (int, float))]
    names = (advice.get(name) for name in ("id", "rule", "framework"))
    return _checked(Predicted(base, low, mid, high, *names, *(known if len(known) == len(saving) else ())))


def _checked(predicted: Predicted) -> Predicted:
    if predicted.base_ns <= 0 or not 0 <= predicted.p10_ns <= predicted.p50_ns <= predicted.p90_ns:
        numbers = ", ".join(f"{name[:-3]} {getattr(predicted, name)}" for name in _NS)
        raise UsageError(f"not a prediction: {numbers}", "the base is above 0, and 0 ≤ p10 ≤ p50 ≤ p90")
    return predicted
