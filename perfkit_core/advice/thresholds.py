"""Every number that decides whether a rule fires, in one table that a user can override.

``perfkit advise --threshold loader_share=0.1``, or ``advise(..., thresholds={"loader_share": 0.1})``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace

from perfkit_core.errors import UsageError


@dataclass(frozen=True, slots=True)
class Thresholds:
    """Shares are of the step time unless the comment says otherwise; sizes and times have their unit in the name. Each
    comment gives the rules that use it, and the source where the number is not our own choice."""

    severity_high: float = 0.10  # all: a saving of so much of the step is high
    severity_medium: float = 0.03  # all: a saving of so much of the step is medium, a smaller one low
    least_saving: float = 0.001  # all: what saves less is not worth reading
    loader_share: float = 0.05  # 10, 13


def overridden(given: Mapping[str, float]) -> Thresholds:
    """The table with some values replaced. Raises UsageError for a name that is none, or a value that is no number ≥
    0."""
    known = {field.name: field.type for field in fields(Thresholds)}
    for name, value in given.items():
        if name not in known:
            raise UsageError(f"no such threshold: {name}", f"choose among {', '.join(known)}")
        if not value >= 0:
            raise UsageError(f"threshold {name}={value}: not a number of 0 or more", "give a number")
    numbers = {name: int(value) if known[name] == "int" else float(value) for name, value in given.items()}
    return replace(Thresholds(), **numbers)
