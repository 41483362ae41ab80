"""Work between the training steps of a recorded script: evaluation, rollouts, saving.

A recorded step lasts from one update to the next, so it contains this work. Two kinds of evidence show it:

- The script has put a module into evaluation and back into training, without an update in between.
- Some steps take more than twice as long as most, and samples of the stack show lines in them that the others do not
  run. Steps that only take longer, for example for longer sequences, run the same lines.

Steps that the profiler records do not count, because it makes operators slower than other work. Steps during which
perfkit writes the recording in the background do not count either."""

from __future__ import annotations

import time
from array import array
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from types import CodeType
from typing import Any, Final, NamedTuple

import numpy as np

from perfkit_core.base.algorithms.arrays import BoolArray, IntArray
from perfkit_core.recording.step_clock import FrameSampler, Usage, of_script
from perfkit_core.trace.model.timed_steps import NOTABLE_BETWEEN, WorkBetween
from perfkit_core.trace.storage import background

_MOST_STEPS: Final = 1 << 20
_FEW_STEPS, _FEW_SAMPLES = 8, 20
_LONG: Final = 2.0
"""A step that takes so many times as long as most contains something else, or more work."""
_UNSEEN: Final = 3.0
"""If none of n samples shows a line, the line takes at most about 3 / n of the time (95% confidence)."""
_MORE: Final = 2.0
"""A line that is so many times as frequent is other work."""
Frame = tuple[CodeType, int | None]
Place = tuple[CodeType, int | None, CodeType | None]
"""Code and line that call, and the code that is called: None if it is no Python code."""


class BetweenSteps:
    """Watches the steps of one training that no profiler records. The methods never raise."""

    def __init__(self) -> None:
        self._sampler, self._usage = FrameSampler(thin=True), Usage()
        self._steps = [array("q") for _ in Steps._fields]
        self._evaluations = array("q"), array("q")  # start and end of each
        self._written: int | None = 0  # :func:`.background.idle_since` at the start of the running step
        self._begun: tuple[int, int] | None = None  # start of the running step, None if it does not count
        self._since: tuple[int, int] | None = None  # since when the script evaluates
        self._evaluated_ns = 0  # in the running step

    def switched(self, training: bool) -> None:
        """A module of the script was put into training or into evaluation."""
        if not training:
            self._since = self._since or self._now()
        elif self._since is not None:
            end, own_ns = self._now()
            self._evaluated_ns += own_ns - self._since[1]
            for times, at_ns in zip(self._evaluations, (self._since[0], end), strict=True):
                times.append(at_ns)
            self._since = None

    def step(self, at_ns: int, own_ns: int | None) -> None:
        """End the running step at ``at_ns`` of ``time.perf_counter_ns``, and begin the next one in this thread.
        ``own_ns``: :meth:`.Usage.own_ns` at this time, None if the next step does not count. A module that is still in
        evaluation is part of the training."""
        now = time.time_ns() - (time.perf_counter_ns() - at_ns)
        written, self._written = self._written, background.idle_since()
        if self._begun is not None and own_ns is not None and self._written == written:
            step = self._begun[0], now, own_ns - self._begun[1] - self._evaluated_ns, self._evaluated_ns
            for times, value in zip(self._steps, step, strict=True):
                times.append(value)
        self._begun, self._since, self._evaluated_ns = None, None, 0
        if own_ns is not None and self._written is not None and len(self._steps[0]) < _MOST_STEPS:
            self._sampler.start()
            self._begun = now, own_ns

    def leave_out(self, spent_ns: int, own_ns: int) -> None:
        """Leave out the beginning of the running step, which perfkit itself took. ``own_ns``: as in :meth:`step`."""
        if self._begun is not None:
            self._begun = self._begun[0] + spent_ns, own_ns

    def stop(self) -> None:
        self._begun = None
        self._sampler.stop()

    def _now(self) -> tuple[int, int]:
        return time.time_ns(), self._usage.own_ns()

    def found(self) -> WorkBetween | None:
        """Return the work between the steps so far, None if there is none, or only little."""
        at_ns, stack, stacks = self._sampler.sampled()
        begin, end, training_ns, evaluated_ns = (np.array(times, np.int64) for times in self._steps)
        start, stop = (np.array(times, np.int64) for times in self._evaluations)
        steps = Steps(begin, end, training_ns, evaluated_ns)
        samples = Samples(np.array(at_ns, np.int64), np.array(stack, np.int64), list(map(of_script, stacks)))
        return work_between(steps, (start, stop), samples)


class Steps(NamedTuple):
    """Start and end of each step in ns since 1970, and the time of the thread in ns, without waits for a processor:
    outside of evaluations, and in them."""

    begin: IntArray
    end: IntArray
    training_ns: IntArray
    evaluated_ns: IntArray


class Samples(NamedTuple):
    """Time of each sample in ns since 1970, the position of its stack in ``stacks``, and the frames of the stacks,
    innermost first."""

    at_ns: IntArray
    stack: IntArray
    stacks: Sequence[Sequence[Frame]]


def work_between(steps: Steps, evaluations: tuple[IntArray, IntArray], samples: Samples) -> WorkBetween | None:
    """Return the work between the steps, None if there is none, or only little. ``evaluations``: start and end of each,
    in ns since 1970."""
    if len(steps.end) < _FEW_STEPS:
        return None
    # waits in short steps are taken from the next long step
    steps = steps._replace(training_ns=np.maximum(steps.training_ns, 0))
    typical_ns = float(np.median(steps.training_ns))
    long = steps.training_ns > _LONG * typical_ns
    longer_ns = float((steps.training_ns[long] - typical_ns).sum())
    evaluated_ns, total_ns = (
        int(steps.evaluated_ns.sum()),
        max(int(steps.training_ns.sum() + steps.evaluated_ns.sum()), 1),
    )
    if evaluated_ns + longer_ns < NOTABLE_BETWEEN * total_ns:
        return None
    each = bool(np.median(steps.evaluated_ns))
    of_step, inside = _of(samples.at_ns, steps.begin, steps.end)
    evaluating = inside & _of(samples.at_ns, *evaluations)[1]
    in_long = inside & ~evaluating & long[of_step]
    usual = inside & ~evaluating & ~in_long
    if usual.sum() < _FEW_SAMPLES <= in_long.sum() and longer_ns > evaluated_ns and not _trains(samples, in_long):
        return WorkBetween((evaluated_ns + longer_ns) / total_ns, each=each)
    others = _other_places(samples, usual, in_long)
    expected = in_long.sum() * longer_ns / max(float(steps.training_ns[long].sum()), 1)
    if others.total() < max(expected / 2, _FEW_SAMPLES):
        longer_ns, others = 0.0, Counter()  # the long steps run the usual lines, or their samples may be chance
    share = (evaluated_ns + longer_ns) / total_ns
    places = _other_places(samples, usual, evaluating) + others
    return WorkBetween(share, *_described(places.most_common(1)), each=each) if share >= NOTABLE_BETWEEN else None


def _of(at_ns: IntArray, begin: IntArray, end: IntArray) -> tuple[IntArray, BoolArray]:
    """Return the interval that began last before each time, and whether the time lies in it."""
    if not len(begin):
        return np.zeros(len(at_ns), np.int64), np.zeros(len(at_ns), np.bool_)
    index = np.maximum(np.searchsorted(begin, at_ns, side="right") - 1, 0)
    return index, (at_ns >= begin[index]) & (at_ns < end[index])


def _trains(samples: Samples, mask: BoolArray) -> bool:
    """Return whether most of the samples lie in updates and backward passes, which run within perfkit's hooks. A step
    of L-BFGS evaluates the model a different number of times in each."""
    hooked = [any("/perfkit_" in code.co_filename for code, _ in stack) for stack in samples.stacks]
    return 2 * int(np.array(hooked, np.bool_)[samples.stack[mask]].sum()) > int(mask.sum())


def _other_places(samples: Samples, usual: BoolArray, other: BoolArray) -> Counter[Place]:
    """Count the outermost lines of the ``other`` samples that are much more frequent in these than in the ``usual``."""
    nodes: dict[tuple[int, Frame], int] = {}  # the tree of the calls
    paths: dict[int, list[int]] = {}  # position of a stack → its nodes, outermost first
    counts = Counter[int](), Counter[int]()
    times = [Counter(samples.stack[mask].tolist()) for mask in (usual, other)]
    for stack in times[0] | times[1]:
        node, paths[stack] = 0, []
        for frame in reversed(samples.stacks[stack]):
            node = nodes.setdefault((node, frame), len(nodes) + 1)
            paths[stack].append(node)
            for count, of_kind in zip(counts, times, strict=True):
                count[node] += of_kind[stack]
    by_chance = _MORE * int(other.sum()) / max(int(usual.sum()), 1)
    places: Counter[Place] = Counter()
    for stack, count_of_stack in times[1].items():
        outermost = samples.stacks[stack][::-1]
        for at, node in enumerate(paths[stack]):
            if counts[1][node] > by_chance * (counts[0][node] + _UNSEEN):
                called = outermost[at + 1][0] if at + 1 < len(outermost) else None
                places[(*outermost[at], called)] += count_of_stack
                break
    return places


def _described(places: Sequence[tuple[Any, int]]) -> tuple[str, str]:
    """Return the name of a function, and file and line of its call."""
    for (code, line, called), _ in places:
        return (called or code).co_qualname, f"{Path(code.co_filename).name}:{line}"
    return "", ""
