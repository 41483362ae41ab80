"""Advice on a recording, each with its prediction, remedy and place in the code; all of it; and its table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import pandas as pd

from perfkit_core.advice.facts import Candidate, Method, Reason
from perfkit_core.language.messages import Text
from perfkit_core.model.columns import Column, duration, share, text, words

Severity = Literal["high", "medium", "low", "none", "note"]
"""``none``: it saves nothing, or costs time; ``note``: the saving is not known."""

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
"""The columns of all tables of advice."""
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
"""The columns of :func:`table`, in order, with their types."""


@dataclass(frozen=True, slots=True)
class Prediction:
    """Time of a step in ns: now (median, and its interval; the mean where the candidate has one), and afterwards as
    percentiles. ``saving_ns`` is base less p50, 0 or more is not promised; its interval is narrower than that of the
    step: what makes the whole training slower does so before and after. ``naive_ns`` is what removing the share of time
    would predict: shown beside, never used.
    """

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
        """The saving as a share of the step."""
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
    """One advice with everything it rests on. ``id`` is stable for the same finding, recorded again."""

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
    """How well the unchanged graph repeats the recording: the median of the relative errors of the steps, the worst
    (None where there is nothing to repeat), how many steps (without recorded steps the whole recording counts as one),
    and the share of device work whose start is not explained by anything recorded (None without such work).
    ``untold_waits`` counts the calls that let a stream wait for something that the device did not record."""

    error: float | None
    worst: float | None
    steps: int
    unexplained: float | None
    untold_waits: int = 0


@dataclass(frozen=True, slots=True)
class After:
    """What an advice saves in ns once the advice of the ids ``once`` is followed, by replays of those with and without
    it."""

    once: tuple[str, ...]
    saving_ns: int


@dataclass(frozen=True, slots=True)
class Advices:
    """The result: advice with the largest saving first, and the rules that could not be evaluated, with the reason.

    ``combined`` is the replay of all advice that do not exclude each other; None where nothing was replayed.
    ``together`` are the ids that it is made of, ``excluded`` gives for the others the reason why they are not among
    them (id → reason). ``without_saving`` was found, but saves nothing, or too little. ``noise_ns`` is the half-width
    of the interval of the recorded median (None for a single step, which shows no spread). ``after`` has the advice
    (ids) that saves much more, or hardly anything, once others are followed. ``asked`` are the questions that the
    advice answers, one each (``loader-workers=4``); empty where nothing was asked. ``source`` is what a command line
    calls the profile.
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
    step_p10_ns and step_p90_ns (80% interval of its median), p10_ns, p50_ns, p90_ns (of a step afterwards), ceiling_ns
    (no change of this kind saves more by itself), floor_ns (the step less that), method, place, first_step, last_step,
    api. Unknown is NA."""
    return frame(map(row, advice))


def frame(rows: Iterable[Mapping[str, Any]]) -> pd.DataFrame:
    """Return rows with the columns of :func:`table`, NA where a row has no value."""
    made = pd.DataFrame(list(rows), columns=list(_TYPES))
    return made.astype({name: kind for name, kind in _TYPES.items() if kind != "object"})


def row(advice: Advice) -> dict[str, Any]:
    """Return one advice by the names of the columns."""
    first, last = advice.steps or (None, None)
    return {
        "id": advice.id, "title": advice.title, "severity": advice.severity, **numbers(advice.prediction),
        "place": advice.place, "first_step": first, "last_step": last,
        "api": advice.remedy.api if advice.remedy else None,
    }  # fmt: skip


def numbers(p: Prediction) -> dict[str, Any]:
    """Return a prediction by the names of the columns."""
    return {
        "saving_ns": p.saving_ns, "saving_ratio": p.saving_ratio,
        "step_ns": p.base_ns, "step_p10_ns": p.base_p10_ns, "step_p90_ns": p.base_p90_ns,
        "p10_ns": p.p10_ns, "p50_ns": p.p50_ns, "p90_ns": p.p90_ns, "ceiling_ns": p.ceiling_ns,
        "floor_ns": None if p.ceiling_ns is None else max(p.base_ns - p.ceiling_ns, 0),
        "method": p.method,
    }  # fmt: skip
