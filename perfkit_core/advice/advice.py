"""The result of ``advise``: advice with predictions and remedies, and the table of all advice."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import pandas as pd

from perfkit_core.advice.facts import Candidate, Method, Reason
from perfkit_core.language.messages import Text
from perfkit_core.model.columns import Column, duration, share, text, words

Severity = Literal["high", "medium", "low", "none", "note"]
"""The severity is ``none`` if the change saves nothing or costs time, and ``note`` if the saving is unknown."""

COLUMNS: Final[tuple[Column, ...]] = (
    text("title", "Title"),
    words("severity", "Severity"),
    text("advice", "Advice"),
    duration("saving_ns", "Saving"),
    share("saving_ratio", "Saving"),
    duration("step_ns", "Step time"),
    duration("step_p10_ns", "Step time, p10"),
    duration("step_p90_ns", "Step time, p90"),
    duration("p10_ns", "New step time, p10"),
    duration("p50_ns", "New step time, p50"),
    duration("p90_ns", "New step time, p90"),
    duration("floor_ns", "Shortest possible step"),
    duration("ceiling_ns", "Largest possible saving"),
    words("method", "Method"),
    words("place", "Place"),
    text("first_step", "First step"),
    text("last_step", "Last step"),
    text("api", "API"),
    text("rule", "Rule"),
    text("reason", "Reason"),
    text("to_record", "What to record"),
    text("combined", "Can be combined"),
    text("why", "Why not combined"),
    duration("afterwards_ns", "Saving after other advice"),
    text("after", "Other advice"),
    text("value", "Value", words="sentences"),
)
_NAMES: Final = (
    "id", "title", "severity", "saving_ns", "saving_ratio", "step_ns", "step_p10_ns", "step_p90_ns", "p10_ns", "p50_ns",
    "p90_ns", "ceiling_ns", "floor_ns", "method", "place", "first_step", "last_step", "api",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Prediction:
    """Recorded and predicted times in ns per step. An unknown time is None.

    ``base_ns`` is the recorded step time: the mean if the candidate gives a mean, else the median. ``base_p10_ns`` and
    ``base_p90_ns`` are the ends of its 80% interval. ``p10_ns``, ``p50_ns`` and ``p90_ns`` are percentiles of the step
    time after the change. ``saving_ns`` is ``base_ns`` less ``p50_ns``; a negative saving is a cost. ``saving_p10_ns``
    and ``saving_p90_ns`` are the ends of the interval of the saving. ``ceiling_ns`` is the largest possible saving.
    ``naive_ns`` is the step time predicted without a replay: ``base_ns`` less the time of the pattern."""

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
        """The saving as a share of the recorded step time; None if unknown."""
        return None if self.saving_ns is None else self.saving_ns / max(self.base_ns, 1)


@dataclass(frozen=True, slots=True)
class Remedied:
    """A remedy with all placeholders filled in. ``code`` is the change to write, and ``api`` the interface that it
    uses. ``since`` is the framework version that it needs. ``verify`` is the command that measures the change."""

    code: str
    api: str
    since: str
    note: str
    verify: str


@dataclass(frozen=True, slots=True)
class Advice:
    """Advice on one finding, with all its data. ``id`` is the same in every recording that shows the same finding."""

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
    """The accuracy of the replay: how well the replay of the unchanged graph matches the recording.

    ``error`` is the median relative error of the replayed step times, and ``worst`` the largest. Both are None if
    nothing can be replayed. ``steps`` is the number of steps; a recording without steps counts as one step.
    ``unexplained`` is the share of device work that starts later than the recorded events explain (None without device
    work). ``unrecorded_events`` is the number of calls that make a stream wait for unknown work."""

    error: float | None
    worst: float | None
    steps: int
    unexplained: float | None
    unrecorded_events: int = 0


@dataclass(frozen=True, slots=True)
class After:
    """The saving of one advice after other advice is followed. ``once`` are the ids of the other advice."""

    once: tuple[str, ...]
    saving_ns: int


@dataclass(frozen=True, slots=True)
class Advices:
    """All advice on a recording, and the rules that could not be evaluated.

    ``advice`` contains the advice with a significant or unknown saving. ``without_saving`` contains the advice that
    saves nothing or too little. ``not_evaluable`` maps each rule that could not be evaluated to the reason.

    ``together`` contains the ids of the advice that can be combined. ``combined`` is the prediction for following all
    of this advice (None if there is none). ``excluded`` maps the ids of the rest of ``advice`` to the reasons why it
    cannot be combined. ``after`` maps ids to savings after other advice is followed. It contains only savings that
    differ much from the saving alone.

    ``noise_ns`` is half the width of the 80% interval of the median step time; None for a single step. ``asked``
    contains the what-if question for each item of ``advice``, such as ``loader-workers=4``. ``source`` is the source as
    given on the command line."""

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
        """Return a table with one row per advice, with the columns of :func:`table`."""
        return table(self.advice)


def table(advice: Iterable[Advice]) -> pd.DataFrame:
    """Return a table with one row per advice. Unknown values are NA. ``saving_ratio`` is the saving as a share of the
    step time. ``step_ns`` is the recorded step time, and ``step_p10_ns`` and ``step_p90_ns`` are the ends of its 80%
    interval. ``p10_ns``, ``p50_ns`` and ``p90_ns`` are percentiles of the step time after the change. ``ceiling_ns`` is
    the largest possible saving. ``floor_ns`` is the shortest possible step time: ``step_ns`` less ``ceiling_ns``. The
    other columns are ``id``, ``title``, ``severity``, ``saving_ns``, ``method``, ``place``, ``first_step``,
    ``last_step`` and ``api``."""
    return frame(map(row, advice))


def frame(rows: Iterable[Mapping[str, Any]]) -> pd.DataFrame:
    integers = dict.fromkeys((name for name in _NAMES if name.endswith(("_ns", "_step"))), "Int64")
    return pd.DataFrame(list(rows), columns=list(_NAMES)).astype({**integers, "saving_ratio": "Float64"})


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
