"""One advice with its prediction, remedy and place in the code; the result with all advice; and its table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import pandas as pd

from perfkit_core.advice.facts import Candidate, Method, Reason
from perfkit_core.language.messages import Text
from perfkit_core.model.columns import Column, duration, share, text, words

Severity = Literal["high", "medium", "low", "none", "note"]
"""``none``: it saves nothing, or costs time; ``note``: the saving is unknown."""

COLUMNS: Final[tuple[Column, ...]] = (
    text("title", "Title"),
    words("severity", "Severity"),
    text("advice", "Advice"),
    duration("saving_ns", "Saving"),
    share("saving_ratio", "Saving"),
    duration("step_ns", "Step"),
    duration("step_p10_ns", "Step p10"),
    duration("step_p90_ns", "Step p90"),
    duration("p10_ns", "P10"),
    duration("p50_ns", "P50"),
    duration("p90_ns", "P90"),
    duration("floor_ns", "Floor"),
    duration("ceiling_ns", "Ceiling"),
    words("method", "Method"),
    words("place", "Place"),
    text("first_step", "First step"),
    text("last_step", "Last step"),
    text("api", "Api"),
    text("rule", "Rule"),
    text("reason", "Reason"),
    text("to_record", "To record"),
    text("combined", "Combined"),
    text("why", "Why"),
    duration("afterwards_ns", "Afterwards"),
    text("after", "After"),
    text("value", "Value", words="sentences"),
)
_TYPES: Final[Mapping[str, str]] = {
    **dict.fromkeys(("id", "title", "severity"), "object"),
    "saving_ns": "Int64",
    "saving_ratio": "Float64",
    **dict.fromkeys(("step_ns", "step_p10_ns", "step_p90_ns", "p10_ns", "p50_ns", "p90_ns"), "Int64"),
    **dict.fromkeys(("ceiling_ns", "floor_ns"), "Int64"),
    **dict.fromkeys(("method", "place"), "object"),
    **dict.fromkeys(("first_step", "last_step"), "Int64"),
    "api": "object",
}
"""The columns of :func:`table` in order, with their types."""


@dataclass(frozen=True, slots=True)
class Prediction:
    """Step times in ns: base now (median with interval, or the candidate's mean), and percentiles after the change.
    ``saving_ns`` is base less p50 and may be negative. Its interval is narrower than that of the step, because noise of
    the whole training affects both. ``naive_ns`` is the step less the pattern's share of time: shown for comparison."""

    method: Method
    base_ns: int
    p10_ns: int | None = None
    p50_ns: int | None = None
    p90_ns: int | None = None
    saving_ns: int | None = None
    ceiling_ns: int | None = None
    naive_ns: int | None = None
    base_p10_ns: int | None = None
    base_p90_ns: int | None = None
    saving_p10_ns: int | None = None
    saving_p90_ns: int | None = None

    @property
    def saving_ratio(self) -> float | None:
        """Saving as a share of the step."""
        return None if self.saving_ns is None else self.saving_ns / max(self.base_ns, 1)


@dataclass(frozen=True, slots=True)
class Remedied:
    """A remedy, filled in: code, the API it uses, the version it needs, and the command that verifies it."""

    code: str
    api: str
    since: str
    note: str
    verify: str


@dataclass(frozen=True, slots=True)
class Advice:
    """One advice with all its data. ``id`` is stable over recordings of the same finding."""

    id: str
    rule: str
    number: int
    version: int
    title: str
    framework: str
    mode: str
    candidate: Candidate
    prediction: Prediction
    severity: Severity
    steps: tuple[int, int] | None
    place: str | None
    remedy: Remedied | None


@dataclass(frozen=True, slots=True)
class Identity:
    """How well the replay of the unchanged graph matches the recording. Median and worst relative error of the steps
    (None if there is nothing to replay), the number of steps (without steps the whole recording is one), and the share
    of device work whose start nothing recorded explains (None without device work). ``untold_waits`` counts calls that
    make a stream wait for an event that the device did not record."""

    error: float | None
    worst: float | None
    steps: int
    unexplained: float | None
    untold_waits: int = 0


@dataclass(frozen=True, slots=True)
class After:
    """What an advice saves in ns after the advice ``once`` is followed, from replays with and without it."""

    once: tuple[str, ...]
    saving_ns: int


@dataclass(frozen=True, slots=True)
class Advices:
    """All advice, the largest saving first, and the rules that could not be evaluated, with the reason.

    ``combined`` is the replay of all advice ``together`` (ids) that do not exclude each other, None without a replay;
    ``excluded`` maps the other ids to reasons. ``without_saving`` was detected but saves nothing or too little.
    ``noise_ns`` is the half-width of the interval of the recorded median (None for a single step). ``after`` has the
    advice (ids) whose saving changes much once others are followed. ``asked`` are the answered what-if questions
    (``loader-workers=4``). ``source`` is the profile on the command line.
    """

    identity: Identity
    advice: tuple[Advice, ...]
    not_evaluable: Mapping[str, Reason]
    combined: Prediction | None = None
    together: tuple[str, ...] = ()
    excluded: Mapping[str, Text] = field(default_factory=dict)
    without_saving: tuple[Advice, ...] = ()
    noise_ns: int | None = None
    after: Mapping[str, After] = field(default_factory=dict)
    asked: tuple[str, ...] = ()
    source: str = "SOURCE"

    def to_pandas(self) -> pd.DataFrame:
        """Return a row for each advice, with the columns of :func:`table`."""
        return table(self.advice)


def table(advice: Iterable[Advice]) -> pd.DataFrame:
    """Return a row for each advice: id, title, severity, saving_ns (p50), saving_ratio (of the step), step_ns (now),
    step_p10_ns and step_p90_ns (80% interval of its median), p10_ns, p50_ns, p90_ns (step after the change), ceiling_ns
    (the most that this kind of change saves), floor_ns (the step less that), method, place, first_step, last_step, api.
    Unknown is NA."""
    return frame(map(row, advice))


def frame(rows: Iterable[Mapping[str, Any]]) -> pd.DataFrame:
    made = pd.DataFrame(list(rows), columns=list(_TYPES))
    return made.astype({name: kind for name, kind in _TYPES.items() if kind != "object"})


def row(advice: Advice) -> dict[str, Any]:
    first, last = advice.steps or (None, None)
    return {
        "id": advice.id, "title": advice.title, "severity": advice.severity, **numbers(advice.prediction),
        "place": advice.place, "first_step": first, "last_step": last,
        "api": advice.remedy.api if advice.remedy else None,
    }  # fmt: skip


def numbers(p: Prediction) -> dict[str, Any]:
    return {
        "saving_ns": p.saving_ns, "saving_ratio": p.saving_ratio,
        "step_ns": p.base_ns, "step_p10_ns": p.base_p10_ns, "step_p90_ns": p.base_p90_ns,
        "p10_ns": p.p10_ns, "p50_ns": p.p50_ns, "p90_ns": p.p90_ns, "ceiling_ns": p.ceiling_ns,
        "floor_ns": None if p.ceiling_ns is None else max(p.base_ns - p.ceiling_ns, 0),
        "method": p.method,
    }  # fmt: skip
