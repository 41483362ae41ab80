"""Input and output of rules: ``RuleInput`` is a recording with its replay, and a ``Candidate`` is a finding."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt

from perfkit_core.advice.recording_cost import recording_cost
from perfkit_core.advice.thresholds import Thresholds
from perfkit_core.base.algorithms import intervals
from perfkit_core.base.algorithms.arrays import BoolArray, IntArray, filled
from perfkit_core.base.language.messages import Message, Text, english, mark, message, plural, render
from perfkit_core.replay import batches
from perfkit_core.replay.critical_path import contradiction, replay_of
from perfkit_core.replay.graph import Graph, Replay, play
from perfkit_core.replay.played_steps import Steps, steps
from perfkit_core.replay.transforms import Number, Quantity, Transform
from perfkit_core.replay.unprofiled import Unprofiled, unprofiled
from perfkit_core.trace.assembly.lost_records import is_measured
from perfkit_core.trace.model.cache import Cache
from perfkit_core.trace.model.meta import CORES, COUNT_KEYS, HOST, PROCESSES, may_lack_work
from perfkit_core.trace.model.schema import DEVICE_WORK
from perfkit_core.trace.model.trace import Trace
from perfkit_core.views.steps.activity import Activity, activities, has_device_work

Method = Literal["replay", "microbenchmark", "prior", "none"]
"""How a saving is predicted. With ``none``, it is not predicted."""
NO_ROWS: Final[IntArray] = np.empty(0, np.int64)


@dataclass(frozen=True, slots=True)
class Reason:
    """Why a rule could not be evaluated."""

    reason: Text
    record: Text = ""  # what to record instead; "" if no recording helps

    @property
    def text(self) -> Text:
        return message("{reason}: {record}", reason=self.reason, record=self.record) if self.record else self.reason

    def __str__(self) -> str:
        return render(self.text)


class NotEvaluableError(Exception):
    """A rule cannot be evaluated on this recording. ``reason`` says why. ``record`` says what to record instead; it is
    "" if no recording helps. Both texts begin without a capital letter and end without a full stop."""

    def __init__(self, reason: Text, record: Text = "") -> None:
        self.reason = Reason(reason, record)
        super().__init__(self.reason)


@dataclass(frozen=True, slots=True)
class Assumption:
    """A number that a prediction depends on."""

    name: str  # name of the number; the end gives the unit, for example ``handover_ns``
    value: Number | Text
    source: Text  # where the value comes from: "recorded", or a citation


def assume(**quantities: Quantity) -> tuple[Assumption, ...]:
    return tuple(Assumption(name, quantity, quantity.source) for name, quantity in quantities.items())


@dataclass(frozen=True, slots=True, repr=False)
class Candidate:
    """A finding of a rule, before its prediction. Times are in ns per step.

    The texts in ``preconditions`` and ``vetoes`` begin without a capital letter and end without a full stop."""

    what: Text  # the finding in one sentence, with its numbers
    evidence: Mapping[str, Any]  # values that support the finding; keys of numbers end with the unit, as in ``wait_ns``
    rows: IntArray = field(default_factory=lambda: NO_ROWS)  # events of the pattern; they give its steps and place
    rows_ns: IntArray | None = None  # time of each row, used to choose the place; None: the duration of each row
    method: Method = "replay"  # "replay" needs ``transforms``; "microbenchmark" and "prior" need ``after_ns``
    transforms: tuple[Transform, ...] = ()  # changes of the replay
    after_ns: Quantity | None = None  # step time after the change
    base_ns: int | None = None  # recorded step time: the mean if the pattern occurs in few steps; None: the median
    ceiling_ns: int | None = None  # largest saving that this kind of change can have
    share_ns: int | None = None  # time of the pattern (None: equal to ``ceiling_ns``)
    period: int = 1  # N if the transforms leave every N-th step unchanged
    preconditions: tuple[Text, ...] = ()  # conditions that were checked and hold
    vetoes: tuple[Text, ...] = ()  # reasons against the advice that were checked and do not apply
    assumptions: tuple[Assumption, ...] = ()  # numbers that the prediction depends on
    risks: tuple[Text, ...] = ()  # possible disadvantages of following the advice, one sentence for each
    conflicts: tuple[str, ...] = ()  # ids of rules whose advice this advice replaces or contradicts
    direction: str | None = None  # "to host" or "to device" if work moves there
    fill: Mapping[str, str] = field(default_factory=dict)  # placeholder values of the remedy, part of the advice id
    words: Mapping[str, str] = field(default_factory=dict)  # placeholder values of the remedy, not part of the id
    needs_remedy: bool = False  # whether the advice is left out if the framework has no remedy for this recording
    place: str | None = None  # line of code, if the rule knows it; None: it is found by ``rows``
    title: Message | None = None  # the finding in a few words; None: the title of the rule

    def __repr__(self) -> str:
        return f"<Candidate {english(self.what)}>"


@dataclass(frozen=True)
class RuleInput:
    """A recording with the numbers that rules need. Each property is computed once. Times are mostly in ns per step."""

    trace: Trace
    thresholds: Thresholds = field(default_factory=Thresholds)
    _cache: Cache = field(default_factory=Cache, init=False, repr=False, compare=False)

    @cached_property
    def replay(self) -> Replay:
        return replay_of(self.trace)

    @cached_property
    def contradiction(self) -> Text | None:
        """Which events wait for each other, so that the replay cannot be played. None if it can be played."""
        return contradiction(self.replay)

    @cached_property
    def steps(self) -> Steps:
        """The recorded steps. If no steps were recorded, the entire recording is one step."""
        return steps(self.replay)

    @cached_property
    def has_steps(self) -> bool:
        return bool(len(self.steps)) and int(self.steps.number[0]) >= 0

    @cached_property
    def step_ns(self) -> int:
        """The median step time. If the host ran ahead of the device, the recorded steps are shorter than the steps of
        a long training, which take as long as their device work. Raises NotEvaluableError if the recording has no host
        events."""
        if not len(self.steps):
            raise NotEvaluableError(message("no host events were recorded, so the start of a step is unknown"))
        return int(self.typical(self.usual_ns))

    @cached_property
    def ahead(self) -> bool:
        """Whether the host ran ahead of the device in the recorded steps."""
        return self.has_steps and self.steps.ahead(self.replay)

    @cached_property
    def late(self) -> bool:
        """Whether the device works on a step after the host has ended it, by more than the time of a step."""
        if not (self.has_steps and self.on_device):
            return False
        steps = self.steps.only(self.mine)
        lag_ns = steps.on_device(self.replay)[1] - self.replay.recorded_ns(steps.after)
        return bool(np.median(lag_ns) > self.step_ns)

    @cached_property
    def usual_ns(self) -> IntArray:
        """The time of each recorded step in a long training, shape (steps of all ranks,)."""
        return self.steps.usual_ns(self.replay) if self.ahead else self.steps.recorded_ns

    @cached_property
    def training(self) -> Unprofiled:
        """The replay of the training without its profiler. Predictions start from it. Raises NotEvaluableError if the
        recording has no host events."""
        if self.contradiction is not None:  # predictions without a replay start from the recorded step
            return Unprofiled(self.replay, 0.0, 1.0, float(self.step_ns), None)
        timed, measured_ns, graph = self.trace.timed_steps, None, self.replay.graph
        if self.step_ns and self.has_steps:
            measured_ns = timed.typical_ns(timed.unprofiled(), self.period)
        device_ns = self.least_ns(self.steps.device_ns(self.replay, graph, graph.start_ns))
        if measured_ns is not None:  # the host may have run ahead in the steps that were not recorded
            measured_ns = max(measured_ns, round(device_ns))
        cost = recording_cost(self.trace.meta)
        run = unprofiled(
            self.replay, cost, measured_ns, lambda graph: self.played_ns(graph, self.period), self.preempted
        )
        return replace(run, step_ns=max(run.step_ns, device_ns))

    @property
    def preempted(self) -> float:
        return self.trace.timed_steps.preempted

    def played_ns(self, graph: Graph, period: int = 1) -> float:
        """Return the median step time in ns after playing a graph. Raises CyclicGraphError. ``period`` is explained at
        :func:`perfkit_core.advice.predict.step_ns`."""
        return float(np.median(self.steps.lasting_ns(self.replay, graph, play(graph), period)))

    @property
    def slowdown(self) -> float:
        """The recorded step time, divided by the step time without the profiler."""
        return self.step_ns / max(self.training.step_ns, 1.0)

    @cached_property
    def in_steps(self) -> BoolArray:
        """The mask of the events in steps, shape (rows,). If no steps were recorded, all events count."""
        return self.trace.ints("step") >= 0 if self.has_steps else np.ones(len(self.trace), np.bool_)

    @cached_property
    def rank(self) -> int:
        """The first rank with steps; -1 for a recording without ranks. Only event times of this rank are compared,
        because the clocks of ranks differ."""
        ranks = self.steps.rank if len(self.steps) else self.trace.ints("rank")
        return int(ranks.min()) if len(ranks) else -1

    @cached_property
    def ranks(self) -> tuple[int, ...]:
        return tuple(np.unique(self.steps.rank).tolist())

    @cached_property
    def mine(self) -> BoolArray:
        """The mask of the steps of :attr:`rank` among the steps of all ranks, shape (steps of all ranks,)."""
        return np.asarray(self.steps.rank == self.rank)

    def of_rank(self, rows: IntArray) -> IntArray:
        mine: IntArray = rows[self.trace.ints("rank")[rows] == self.rank]
        return mine

    @cached_property
    def activity(self) -> Activity:
        """The intervals of each kind of activity on :attr:`rank`."""
        return activities(self.trace).of(self.trace, self.rank)

    @cached_property
    def batch_rows(self) -> IntArray:
        """The rows of the events that fetch the batches of the steps. Raises NotEvaluableError if there are none."""
        self.need_steps()
        rows = batches.loads(self.trace)
        rows = rows[(self.trace.ints("step")[rows] >= 0) & (self.replay.first[rows] >= 0)]
        if not len(rows):
            raise NotEvaluableError(
                message("no data loading was recorded"),
                message("use the framework's DataLoader or perfkit.profile(loader, …), which record data loading"),
            )
        return rows

    @cached_property
    def batches_per_step(self) -> float:
        """The mean number of batches per step, without steps that begin an epoch, which call the loader more often."""
        rows, steps = self.batch_rows, self.steps.only(self.mine)
        calls, begins = (
            steps.position(self.trace, part) for part in (rows, rows[batches.begins_epoch(self.trace, rows)])
        )
        count = np.bincount(calls[calls >= 0], minlength=len(steps))
        usual = np.setdiff1d(np.arange(len(steps)), begins)
        return float(np.mean(count[usual] if count[usual].any() else count))

    @cached_property
    def loading_ns(self) -> float:
        return self.typical(self.within_steps(self.activity.loading))

    @cached_property
    def waited_ns(self) -> IntArray:
        """The time that each step of :attr:`rank` waits for batches that are not ready, shape (steps of the rank,)."""
        node, waited_ns = batches.waited(self.replay.graph)
        steps = self.steps.only(self.mine)
        step = steps.position(self.trace, self.replay.graph.row[node])
        total = np.zeros(len(steps), np.int64)
        np.add.at(total, step[step >= 0], waited_ns[step >= 0])
        return total

    @cached_property
    def period(self) -> int:
        """The distance in steps between long waits for batches: 4 if every fourth step waits. With too few loader
        workers, this is the number of workers. The distance is 1 if every step waits, or if waits are short."""
        if self.waited_ns.sum() <= self.thresholds.loader_share * int(self.steps.recorded_ns[self.mine].sum()):
            return 1
        rows = batches.loads(self.trace)
        begins = self.steps.only(self.mine).position(self.trace, rows[batches.begins_epoch(self.trace, rows)])
        return batches.period(self.waited_ns, np.isin(np.arange(len(self.waited_ns)), begins))

    @property
    def on_device(self) -> bool:
        return has_device_work(self.trace)

    def recorded_number(self, what: str) -> int | None:
        """Return the recorded number of CORES, THREADS or PROCESSES; None if it was not recorded."""
        meta = self.trace.meta
        host = meta.extra.get(HOST)
        of_host: list[Mapping[str, Any]] = [host] if isinstance(host, Mapping) else []
        for mapping in (*of_host, meta.options, meta.extra):
            for name in COUNT_KEYS[what]:
                number = mapping.get(name)
                if isinstance(number, int) and not isinstance(number, bool) and number > 0:
                    return number
        return None

    @property
    def cores(self) -> int | None:
        """The number of cores for each process of the training; None if it was not recorded."""
        of_machine = self.recorded_number(CORES)
        return None if of_machine is None else max(of_machine // (self.recorded_number(PROCESSES) or 1), 1)

    def typical(self, of_steps: npt.NDArray[Any]) -> float:
        """Return the median of ``of_steps``. This array has one value per step, for all ranks or only for :attr:`rank`.
        If :attr:`period` is N > 1, return the median of the means of N consecutive steps."""
        steps = self.steps if len(of_steps) == len(self.steps) else self.steps.only(self.mine)
        return float(np.median(steps.of_periods(of_steps, self.period)))

    def least_ns(self, device_ns: IntArray) -> float:
        """Return how long a usual step takes at least if a device works on each step for ``device_ns``, of shape (steps
        of all ranks,): the mean of a long training, and not more than the median, as few steps may have far more
        work."""
        return min(self.typical(device_ns), float(device_ns.mean()))

    def per_step(self, dur_ns: int) -> float:
        """Return ``dur_ns``, a sum over the whole recording, divided by the number of steps."""
        return dur_ns / max(len(self.steps), 1)

    def mean_ns(self, rows: IntArray) -> float:
        """Return the summed duration of the events, divided by the number of steps."""
        return self.per_step(int(self.trace.ints("dur_ns")[rows].sum()))

    def within_steps(self, what: intervals.Intervals, device: bool = False) -> IntArray:
        """Return the time that the intervals cover in each step of :attr:`rank`, shape (steps of the rank,). If the
        intervals are those of a device that works late, the steps are those of the device."""
        return intervals.covered_ns(what, *self.windows(self.mine, device))

    def windows(self, chosen: BoolArray, device: bool = False) -> intervals.Intervals:
        """Return the begin and end of steps of one rank. With ``device``, those of the device if it works late."""
        steps = self.steps.only(chosen)
        if device and self.late:
            return steps.on_device(self.replay)
        return self.replay.recorded_ns(steps.first), self.replay.recorded_ns(steps.after)

    def totals(self, rows: IntArray, values: IntArray | None = None) -> IntArray:
        """Return the sum of the rows' ``values`` in each step, shape (steps of all ranks,). If ``values`` is None,
        return the number of rows in each step."""
        total = np.zeros(len(self.steps), np.int64)
        step = self.steps.position(self.trace, rows)
        np.add.at(total, step[step >= 0], 1 if values is None else values[step >= 0])
        return total

    def median_total(self, rows: IntArray, values: IntArray | None = None) -> float:
        return float(np.median(self.totals(rows, values))) if len(self.steps) else 0.0

    def covered_ns(self, rows: IntArray) -> float:
        """Return the time in which at least one of the rows runs: the median over the steps of :attr:`rank`."""
        if not len(self.steps) or not len(rows):
            return 0.0
        covered = intervals.union_of(np.sort(self.of_rank(rows)), self.trace.ints("start_ns"), self.trace.end_ns)
        return float(np.median(self.within_steps(covered, device=not self.trace.host[rows].any())))

    @cached_property
    def busy_ns(self) -> float:
        """The time in which any device of :attr:`rank` works in a step: the median over the steps."""
        return self.covered_ns(np.flatnonzero(~self.trace.host & self.trace.rows("kind", *DEVICE_WORK)))

    @cached_property
    def waiting_ns(self) -> IntArray:
        """The part of an event's self time in which the host waits for a device or another thread, shape (rows,)."""
        trace, graph = self.trace, self.replay.graph
        nodes = np.flatnonzero(graph.on_host & (graph.row >= 0))
        busy = filled(len(trace), 0)
        np.add.at(busy, graph.row[nodes], graph.dur_ns[nodes])
        waiting: IntArray = np.where(self.replay.first >= 0, np.maximum(trace.ints("self_ns") - busy, 0), 0)
        return waiting

    def ceiling_ns(self, part_ns: IntArray) -> int:
        """Return how much the median step time falls if each step becomes shorter by its value in ``part_ns``. Waits
        that the change would cause are ignored. ``part_ns`` has the shape (steps of all ranks,)."""
        return self.step_ns - max(int(self.typical(self.usual_ns - part_ns)), 0)

    def exceeds(self, spent_ns: float, share: float) -> bool:
        """Return whether a time exceeds this share of the step time."""
        return spent_ns > share * self.step_ns

    def need_steps(self) -> None:
        if not self.has_steps:
            raise NotEvaluableError(
                message("no steps were recorded"),
                message("give the profiler a schedule, and call its step() after each iteration"),
            )

    def need_complete(self) -> None:
        """Raise NotEvaluableError if device work was not recorded in any step, or not interpreted. Without this work, a
        device seems to be idle while it works, and no saving can be predicted."""
        lacks = may_lack_work(self.trace.quality)
        if lacks is not None:
            raise NotEvaluableError(lacks)
        if not is_measured(self.trace):
            raise NotEvaluableError(
                message("the device work of no step was recorded completely"),
                message("record fewer steps, so that the buffers of the profiler do not overflow"),
            )

    def need_device(self) -> None:
        if not self.on_device:
            raise NotEvaluableError(message("no device work was recorded"))

    def need(self, column: str, record: Text) -> None:
        """Raise NotEvaluableError if a column of the event table is empty. ``record`` says how to record the column."""
        if not self.trace.has_values(column):
            raise NotEvaluableError(message("no {column} were recorded", column=column), record)

    def part(self, name: str, spent_ns: float) -> dict[str, float]:
        """Return a time per step and its share of the step time, as evidence. If ``name`` is ``loader``, the keys are
        ``loader_ns``, ``loader_ratio`` and ``step_ns``."""
        ratio = spent_ns / max(self.step_ns, 1)
        return {f"{name}_ns": round(spent_ns), f"{name}_ratio": ratio, "step_ns": self.step_ns}

    def of_step(self, spent_ns: float) -> Message:
        """Return ``18.4 ms of the 176 ms step``, or ``… of the 176 ms recording`` if no steps were recorded. A time
        that exceeds the median step is one of the mean step, or a sum over threads or ranks, and it says so."""
        if not self.has_steps:
            if spent_ns <= self.step_ns:
                return message("{part:ns} of the {recording:ns} recording", part=spent_ns, recording=self.step_ns)
            text = mark("{total:ns}, summed over threads, in the {recording:ns} recording")
            return message(text, total=spent_ns, recording=self.step_ns)
        mean = round(float(self.steps.recorded_ns.mean()))
        if spent_ns <= self.step_ns:
            return message("{part:ns} of the {step:ns} step", part=spent_ns, step=self.step_ns)
        if spent_ns <= mean:
            return message("{part:ns} of the mean step of {step:ns}", part=spent_ns, step=mean)
        text = mark("{total:ns}, summed over threads and ranks, in each step of {step:ns}")
        return message(text, total=spent_ns, step=self.step_ns)

    def of_busy(self, spent_ns: float) -> Message:
        """Return ``18.4 ms of the 90 ms of device busy time per step``."""
        busy = max(self.busy_ns, spent_ns)  # of one device; several may be busy
        if self.has_steps:
            return message("{part:ns} of the {busy:ns} of device busy time per step", part=spent_ns, busy=busy)
        return message("{part:ns} of the {busy:ns} of device busy time in the recording", part=spent_ns, busy=busy)

    def plural(self, singular: str, many: str, count: float, /, **values: Any) -> Message:
        """Return ``singular`` if the rounded count is 1, else ``many``, with ``count`` and ``per_step`` filled in."""
        number = 1 if f"{count:.3g}" == "1" else 2
        per_step = message("per step") if self.has_steps else message("in the recording")
        return plural(singular, many, number, **({"count": count, "per_step": per_step} | values))


def listed(names: Sequence[str], most: int = 3) -> Message:
    """Return up to ``most`` names and the number of further names, for example ``a, b, c and 4 more``."""
    rest = len(names) - most
    if rest > 0:
        return message("{names:list} and {rest:count} more", names=names[:most], rest=rest)
    return message("{names:and}", names=names)


def numbered_steps(numbers: Sequence[int]) -> Message:
    """Return ``step 3``, or ``steps 3, 5 and 2 more`` for several steps."""
    names = listed([str(number) for number in numbers], 5)
    return message("step {number}", number=names) if len(numbers) == 1 else message("steps {numbers}", numbers=names)
