"""The result of ``advise``: advice with predictions and remedies, and the table of all advice."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import pandas as pd

from perfkit_core.advice.rule_input import Candidate, Method, Reason
from perfkit_core.base.language.messages import Message, Sentence, Text, english
from perfkit_core.base.language.units import counted, format_duration, format_ratio
from perfkit_core.trace.model.columns import Column, duration, key, share, text, words
from perfkit_core.trace.model.trace import Trace

Severity = Literal["high", "medium", "low", "none", "note"]
"""``high``, ``medium`` and ``low`` are grades of the predicted saving. ``none`` means that the change saves nothing or
costs time. ``note`` means that the saving is unknown."""

COLUMNS: Final[tuple[Column, ...]] = (
    key("id", "ID", thing="advice"),
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
    """Recorded and predicted times in ns per step. An unknown time is None. The ends of an interval are p10 and p90."""

    method: Method
    base_ns: int  # recorded step time: ``Candidate.base_ns`` (a mean) if it is given, else the median
    p10_ns: int | None = None  # step time after the change, lower end
    p50_ns: int | None = None  # step time after the change
    p90_ns: int | None = None  # step time after the change, upper end
    saving_ns: int | None = None  # base_ns less p50_ns; negative if the change costs time
    ceiling_ns: int | None = None  # largest possible saving
    naive_ns: int | None = None  # prediction without a replay: base_ns less the time of the pattern
    base_p10_ns: int | None = None  # recorded step time, lower end
    base_p90_ns: int | None = None  # recorded step time, upper end
    saving_p10_ns: int | None = None  # saving, lower end
    saving_p90_ns: int | None = None  # saving, upper end
    replayed_ratio: float | None = None  # saving by the replay alone, before earlier outcomes, as a share of base_ns
    outcomes: int = 0  # number of earlier outcomes of the rule that adjusted the prediction

    @property
    def saving_ratio(self) -> float | None:
        """The saving as a share of the recorded step time; None if unknown."""
        return None if self.saving_ns is None else self.saving_ns / max(self.base_ns, 1)


@dataclass(frozen=True, slots=True)
class Remedied:
    """A remedy with all placeholders filled in."""

    code: str  # change to write
    api: str  # functions, options or variables of the framework that ``code`` uses
    since: str  # framework version that the code needs
    note: Text  # explanation in words
    verify: str  # command that measures the change


@dataclass(frozen=True, slots=True, repr=False)
class Advice:
    """Advice on one finding, with all its data. ``id`` is the same in every recording that shows the same finding."""

    id: str
    rule: str
    number: int
    version: int
    title: Message
    framework: str
    framework_version: str | None
    runtime: Literal["host", "device"]  # where the recorded training computes
    mode: str
    candidate: Candidate
    prediction: Prediction
    severity: Severity
    steps: tuple[int, int] | None
    place: str | None
    remedy: Remedied | None

    def __repr__(self) -> str:
        return f"<Advice {self.id}: {english(self.title)}, {self.saves()}>"

    def saves(self) -> str:
        """Return the saving or the cost in English: ``saves 3.2 ms of 10 ms (32%)``."""
        p = self.prediction
        if p.saving_ns is None or p.saving_ratio is None:
            return "no saving" if p.ceiling_ns == 0 else "saving unknown"
        verb, share = "saves" if p.saving_ns >= 0 else "costs", format_ratio(abs(p.saving_ratio))
        return f"{verb} {format_duration(abs(p.saving_ns))} of {format_duration(p.base_ns)} ({share})"


@dataclass(frozen=True, slots=True)
class Identity:
    """The accuracy of the replay: how close the replay of the unchanged recording comes to the recorded times."""

    error: float | None  # median relative error of the replayed step times; None if nothing can be replayed
    worst: float | None  # largest relative error of a replayed step time; None if nothing can be replayed
    steps: int  # number of steps; 1 for a recording without steps
    unexplained: float | None  # share of device work that starts later than recorded events explain
    unrecorded_events: int = 0  # number of calls that make a stream wait for unknown work
    contradiction: Text | None = None  # why the recording cannot be replayed, None if it can


@dataclass(frozen=True, slots=True)
class Base:
    """The step from which predictions start: the recorded step without the work of the profiler. Times are in ns."""

    recorded_ns: int  # median recorded step time
    step_ns: int  # replayed median step time without the profiler
    measured_ns: int | None  # median time of a step without the profiler, None if no clock timed such steps
    event_ns: float  # time that the profiler took to record an operator
    speed: float  # factor by which the time of all host work was scaled; 1 if the profiler explains the difference
    error: float | None  # base error: how far step_ns is from measured_ns, as a share of measured_ns
    lost: float = 0.0  # share of the recorded steps that was lost to other processes

    @property
    def overhead(self) -> float:
        """The share by which recording made a step longer."""
        return self.recorded_ns / max(self.step_ns, 1) - 1


@dataclass(frozen=True, slots=True)
class After:
    """The saving of one item of advice after other advice is followed."""

    once: tuple[str, ...]  # ids of the other advice
    saving_ns: int


@dataclass(frozen=True, slots=True, repr=False)
class Advices:
    """All advice on a recording, and the rules that could not be evaluated."""

    identity: Identity  # accuracy of the replay
    advice: tuple[Advice, ...]  # advice with a significant or unknown saving
    not_evaluable: Mapping[str, Reason]  # reason for each rule that could not be evaluated
    combined: Prediction | None = None  # prediction for all advice in ``together``; None if ``together`` is empty
    together: tuple[str, ...] = ()  # ids of the advice that can be combined
    excluded: Mapping[str, Text] = field(default_factory=dict)  # advice id → why this advice cannot be combined
    without_saving: tuple[Advice, ...] = ()  # advice that saves nothing or too little
    noise_ns: int | None = None  # half the width of the 80% interval of the median step time; None for a single step
    after: Mapping[str, After] = field(default_factory=dict)  # advice id → its saving, if other advice changes it much
    questions: tuple[str, ...] = ()  # what-if question of each item of ``advice``, such as ``loader-workers=4``
    source: str = "SOURCE"  # source as given on the command line
    base: Base | None = None  # the step without the profiler; None if the recording has no host events
    trace: Trace | None = field(default=None, compare=False)  # the recording

    def __repr__(self) -> str:
        first = f": {english(self.advice[0].title)}, {self.advice[0].saves()}" if self.advice else ""
        more = f", and {len(self.advice) - 1} more" if self.advice[1:] else ""
        return f"<Advices{first or ' none'}{more}; {counted(len(self.not_evaluable), 'rule')} not evaluable>"

    def to_pandas(self) -> pd.DataFrame:
        """Return a table with one row per item of advice, with the columns of :func:`table`."""
        return table(self.advice)


def table(advice: Iterable[Advice]) -> pd.DataFrame:
    """Return a table with one row per item of advice. Unknown values are NA. Times are in ns per step.

    - ``id``, ``title``, ``severity``, ``method``, ``api``: as in :class:`Advice`, :class:`Prediction` and the remedy
    - ``place``, ``first_step``, ``last_step``: line of code and steps of the pattern
    - ``step_ns``: recorded step time, with its 80% interval ``step_p10_ns`` to ``step_p90_ns``
    - ``p50_ns``: step time after the change, with its interval ``p10_ns`` to ``p90_ns``
    - ``saving_ns``: ``step_ns`` less ``p50_ns``
    - ``saving_ratio``: the saving as a share of ``step_ns``
    - ``ceiling_ns``: largest possible saving
    - ``floor_ns``: shortest possible step time, ``step_ns`` less ``ceiling_ns``"""
    return frame(map(row, advice))


def frame(rows: Iterable[Mapping[str, Any]]) -> pd.DataFrame:
    integers = dict.fromkeys((name for name in _NAMES if name.endswith(("_ns", "_step"))), "Int64")
    return pd.DataFrame(list(rows), columns=list(_NAMES)).astype({**integers, "saving_ratio": "Float64"})


def row(advice: Advice) -> dict[str, Any]:
    first, last = advice.steps or (None, None)
    return {
        "id": advice.id, "title": Sentence(advice.title), "severity": advice.severity, **numbers(advice.prediction),
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
