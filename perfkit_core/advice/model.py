"""The parts of an advice: what a rule found, what the replay predicts, what to do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np

from perfkit_core.algorithms.arrays import IntArray
from perfkit_core.language.messages import Text, message, render
from perfkit_core.replay.quantity import Number, Quantity
from perfkit_core.replay.transforms.transform import Edit

if TYPE_CHECKING:
    import pandas as pd

Method = Literal["replay", "microbenchmark", "prior", "none"]
"""How a saving is predicted. ``none`` carries no number."""
NO_ROWS: Final[IntArray] = np.empty(0, np.int64)


class NotEvaluableError(Exception):
    """A rule cannot be evaluated on this recording: the ``reason``, and what to ``record`` instead ("": nothing helps).

    Both are fragments, without a capital and a full stop: they are shown within a sentence."""

    def __init__(self, reason: Text, record: Text = "") -> None:
        super().__init__(reason, record)
        self.reason = reason
        self.record = record

    def __str__(self) -> str:
        return str(Reason(self.reason, self.record))


@dataclass(frozen=True, slots=True)
class Reason:
    """Why a rule could not be evaluated, and what to ``record`` so that it can be ("": nothing helps)."""

    reason: Text
    record: Text = ""

    @property
    def text(self) -> Text:
        """Both in one message."""
        return message("{reason}: {record}", reason=self.reason, record=self.record) if self.record else self.reason

    def __str__(self) -> str:
        return render(self.text)


@dataclass(frozen=True, slots=True)
class Assumption:
    """A number that a prediction rests on, with its unit in the name, and where it comes from."""

    name: str
    value: Number | Text
    source: Text


def assume(**quantities: Quantity) -> tuple[Assumption, ...]:
    """Return an assumption for each quantity by its name; the quantity says where it comes from."""
    return tuple(Assumption(name, quantity, quantity.source) for name, quantity in quantities.items())


@dataclass(frozen=True, slots=True)
class Candidate:
    """What a rule found, before anything is predicted.

    What people read:

    - ``what``: the finding in one sentence with its numbers;
    - ``preconditions``: what was checked and holds; ``vetoes``: what was checked and does not hold (fragments);
    - ``risks``: what may go wrong when the advice is followed, a sentence each;
    - ``assumptions``: the numbers that the prediction rests on.

    What programs read:

    - ``evidence``: the numbers by name, with units in the names;
    - ``rows``: the events that show it (for the range of steps and the place in the code); ``rows_ns``: the time of
      each that counts (None: all of it);
    - ``direction``: "to host" or "to device" for placement;
    - ``fill``: the words that the remedy's code has in braces, and part of what identifies the finding; ``words``:
      further ones, which only choose the remedy and complete its text;
    - ``conflicts``: ids of rules whose advice this one replaces or hinders.

    What is predicted from it:

    - ``method``, and for "replay" the ``edits`` of the recording, else ``after_ns``, the time of a step afterwards;
    - ``base_ns``: the time of a step now where it is the mean and not the median, for what only few steps have;
    - ``ceiling_ns``: no change of this kind saves more in a step; ``share_ns``: the pattern's own time in a step where
      that is not the ceiling;
    - ``period``: with the edits, one of so many steps in a row differs from the others: they are replayed as one.
    """

    what: Text
    evidence: Mapping[str, Any]
    rows: IntArray = field(default_factory=lambda: NO_ROWS)
    rows_ns: IntArray | None = None
    method: Method = "replay"
    edits: tuple[Edit, ...] = ()
    after_ns: Quantity | None = None
    base_ns: int | None = None
    ceiling_ns: int | None = None
    share_ns: int | None = None
    period: int = 1
    preconditions: tuple[Text, ...] = ()
    vetoes: tuple[Text, ...] = ()
    assumptions: tuple[Assumption, ...] = ()
    risks: tuple[Text, ...] = ()
    conflicts: tuple[str, ...] = ()
    direction: str | None = None
    fill: Mapping[str, str] = field(default_factory=dict)
    words: Mapping[str, str] = field(default_factory=dict)


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
    severity: Literal["high", "medium", "low", "none", "note"]
    steps: tuple[int, int] | None
    place: str | None
    remedy: Remedied | None


@dataclass(frozen=True, slots=True)
class Remedied:
    """A remedy, filled in: code, the API it uses, the version it needs, and the command that verifies it."""

    code: str
    api: str
    since: str
    note: str
    verify: str


@dataclass(frozen=True, slots=True)
class Identity:
    """How well the unchanged graph repeats the recording: the median of the relative errors of the steps, the worst
    (None where there is nothing to repeat), how many steps (without recorded steps the whole recording counts as one),
    and the share of the work of devices whose start nothing recorded explains (None without such work).
    ``untold_waits`` counts the calls that let a stream wait where no record of the device tells for what."""

    error: float | None
    worst: float | None
    steps: int
    unexplained: float | None
    untold_waits: int = 0


@dataclass(frozen=True, slots=True)
class After:
    """What an advice saves in ns once the advice of the ids ``once`` is followed, by replay of those with and without
    it."""

    once: tuple[str, ...]
    saving_ns: int


@dataclass(frozen=True, slots=True)
class Advices:
    """The result: advice with the largest saving first, and the rules that could not be evaluated, with the reason.

    ``combined`` is the replay of all advice that do not exclude each other; None where nothing was replayed.
    ``together`` are the ids that it is made of, ``excluded`` says of the others why they are not among them (id →
    reason). ``without_saving`` was found, but saves nothing, or too little. ``noise_ns`` is the half-width of the
    interval of the recorded median (None for a single step, which shows no spread). ``after`` tells of an advice (id)
    that saves much more, or hardly anything, once others are followed. ``asked`` are the questions that the advice
    answers, one each (``loader-workers=4``); empty where nothing was asked. ``source`` is what a command line calls the
    profile.
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
        """A row an advice, with the columns of :func:`perfkit_core.advice.data.table`."""
        from perfkit_core.advice.data import table

        return table(self)
