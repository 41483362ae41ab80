"""The account of a device for rules: what holds it back in a step, and the physical limit of what a change can save.

A change of host work saves at most the time in which the device waits for the host. A change of device work saves at
most the time in which only this work runs. Time in which launched work does not start, or in which work without a
launch is awaited, is unknown: nothing shows that the host or the program is at fault."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from perfkit_core.advice.rule_input import NO_ROWS, Candidate, RuleInput
from perfkit_core.base.algorithms import intervals
from perfkit_core.base.algorithms.arrays import BoolArray, IntArray
from perfkit_core.base.algorithms.intervals import Intervals
from perfkit_core.causes.account import device_segments
from perfkit_core.causes.segments import HOST, WORDS, Segments
from perfkit_core.replay import batches, transforms
from perfkit_core.replay.transforms import Case, Unblock
from perfkit_core.trace.model.cache import once
from perfkit_core.trace.model.schema import DATALOADER, DEVICE_WORK

UNKNOWN: Final = ("in_flight", "unlaunched")
_NOTABLE: Final = 0.1
"""A smaller share of the step does not change what is said about it."""
_SAME: Final = 0.2
"""If the account of a step differs from the step by more than this share, the device works outside of its steps."""


@dataclass(frozen=True, slots=True)
class DeviceAccount:
    """The account of the device with the most work of :attr:`RuleInput.rank`. Times are in ns per step, as
    :meth:`RuleInput.typical` defines it."""

    facts: RuleInput
    segments: Segments

    def times(self, *words: str) -> Intervals:
        mask = np.isin(self.segments.word, [WORDS.index(word) for word in words])
        return self.segments.start[mask], self.segments.end[mask]

    def ns(self, *words: str) -> float:
        return self.within(self.times(*words))

    def within(self, times: Intervals) -> float:
        """Return how long disjoint, sorted intervals last in a step."""
        return self.facts.typical(self.facts.within_steps(times, device=True)) if len(times[0]) else 0.0

    def held(self, places: BoolArray, unrecorded: bool = False) -> Intervals:
        """Return when the device waits for the host and the innermost host event is in the mask ``places``, of shape
        (rows,). With ``unrecorded``, times without a host event count, too."""
        mask = (self.segments.word == WORDS.index(HOST)) & np.append(places, unrecorded)[self.segments.event]
        return self.segments.start[mask], self.segments.end[mask]


@once
def device_account(facts: RuleInput) -> DeviceAccount | None:
    """Return the account. None without device work or steps, and if the device does not work within the steps."""
    trace = facts.trace
    work = np.flatnonzero(trace.rows("kind", *DEVICE_WORK) & ~trace.host & (trace.ints("rank") == facts.rank))
    if not len(work) or not len(facts.steps):
        return None
    devices = trace.codes("device").codes[work]
    busiest = np.bincount(devices[devices >= 0], trace.ints("dur_ns")[work][devices >= 0])
    if not len(busiest):
        return None
    account = DeviceAccount(facts, device_segments(trace, facts.rank, int(busiest.argmax())))
    return account if abs(account.ns(*WORDS) - facts.step_ns) <= _SAME * facts.step_ns else None


@dataclass(frozen=True, slots=True)
class Limit:
    """What changes claim of the account of a device."""

    on_host: bool  # whether host work changes
    ns: float  # the most that they can save per recorded step


def limit(facts: RuleInput, changes: Iterable[transforms.Transform], case: Case = Case.SHORT) -> Limit | None:
    """Return the limit of changes: the time in which the device waits for the host, if they change host work, and the
    time in which only the changed work runs, as far as it becomes shorter. With several ranks, waits of one for another
    may go. None without an account."""
    account, trace = device_account(facts), facts.trace
    if account is None:
        return None
    on_host = loads = False
    claimed: list[tuple[IntArray, float]] = []  # device work of each change, and the share of its time that goes
    for change in changes:
        inner: Any = change.change if isinstance(change, transforms.InCases) else change
        if isinstance(inner, transforms.Insert):  # takes time, and saves none
            continue
        if isinstance(inner, transforms.Shorten):
            on_host = True
            continue
        chosen = transforms.chosen_rows(
            facts.replay, inner.rows, getattr(inner, "below", not isinstance(inner, Unblock))
        )
        on_host |= bool(getattr(inner, "host", True) and (chosen & trace.host).any())
        loads |= bool((chosen & trace.rows("phase", DATALOADER)).any())
        if getattr(inner, "device", True) and not isinstance(inner, (transforms.Batch, Unblock)):
            left = transforms.value(inner.factor, case) if isinstance(inner, transforms.Scale) else 0.0
            work = np.flatnonzero(chosen & ~trace.host & trace.rows("kind", *DEVICE_WORK))
            claimed.append((facts.of_rank(work), max(1 - left, 0.0)))
    total = account.ns(HOST, "latency", "tail") if on_host else 0.0
    if on_host and not loads and not facts.has_steps and batches.in_workers(trace, batches.loads(trace)).any():
        # without steps, the replay does not know when workers have made a batch: waits for them become longer
        total = max(total - 2 * account.within(account.held(trace.rows("phase", DATALOADER))), 0.0)
    if facts.replay.tied:  # waits of this rank for the changed work of another rank
        total += account.ns("communication")
    return Limit(on_host, total + _exposed_ns(account, claimed) + (0.0 if on_host else account.ns("latency")))


def _exposed_ns(account: DeviceAccount, claimed: list[tuple[IntArray, float]]) -> float:
    """Return the time in which only the claimed device work runs. Each part counts with its share."""
    facts, trace = account.facts, account.facts.trace
    work = np.unique(np.concatenate([NO_ROWS, *(rows for rows, _ in claimed)]))
    every = facts.of_rank(np.flatnonzero(trace.rows("kind", *DEVICE_WORK) & ~trace.host))
    start, end = trace.ints("start_ns"), trace.end_ns
    others = intervals.union_of(np.setdiff1d(every, work), start, end)
    exposed = [
        share * account.within(intervals.subtract(intervals.union_of(np.sort(rows), start, end), others))
        for rows, share in claimed if len(rows)
    ]  # fmt: skip
    return float(sum(exposed))


def hidden_ns(facts: RuleInput, candidate: Candidate) -> float:
    """Return the time of a step in which nothing shows why the device is idle, if this hides what a change of host work
    saves: if it is longer than all the time in which the device waits for the host. Else return 0."""
    account = device_account(facts)
    if account is None or not candidate.transforms:
        return 0.0
    unknown = account.ns(*UNKNOWN)
    if not facts.exceeds(unknown, _NOTABLE) or unknown < account.ns(HOST):
        return 0.0
    claimed = limit(facts, candidate.transforms)
    return unknown if claimed is not None and claimed.on_host else 0.0


def wastes(facts: RuleInput, candidate: Candidate) -> bool:
    """Return whether the device waits for the host events of a candidate for more than a tenth of the step."""
    account, rows = device_account(facts), candidate.rows[facts.trace.host[candidate.rows]]
    if account is None or not len(rows):
        return False
    start, end = facts.trace.ints("start_ns"), facts.trace.end_ns
    claimed = intervals.union_of(np.sort(facts.of_rank(rows)), start, end)
    return facts.exceeds(account.within(intervals.intersect(account.times(HOST), claimed)), _NOTABLE)
