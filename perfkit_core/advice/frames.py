"""What the training's Python code did in given intervals, from samples of its frames."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np

from perfkit_core.advice.operators import operator_order
from perfkit_core.base.algorithms import nesting
from perfkit_core.base.algorithms.arrays import NO_ROW, BoolArray, IntArray
from perfkit_core.base.algorithms.intervals import Intervals
from perfkit_core.trace.model.cache import once
from perfkit_core.trace.model.frame_samples import FrameSamples
from perfkit_core.trace.model.trace import Trace
from perfkit_core.views.select import marked
from perfkit_core.views.user_code import innermost

REPORTS: Final = re.compile(
    r"serialization\.py|pickle|checkpoint|(?<![a-z])(log|logging|logger|loggers|log_(?!softmax|prob|sigmoid)\w+|print"
    r"|report\w*|save|save_\w+|dump\w*|write_\w+|plot\w*|histogram\w*|statistics|tensorboard\w*|visualdl|wandb|mlflow|tqdm)(?![a-z])",
    re.IGNORECASE,
)
"""Names of files and functions that write checkpoints, logs or statistics. Training does not need their results."""


_LINE: Final = re.compile(r"\(\d+\)(?=: )")
_LAYER: Final = re.compile(r"nn/(?:modules/module|layer/layers)\.py")
_LONGEST_NS: Final = 5_000_000_000
"""A longer time between two samples lies between two cycles."""


@dataclass(frozen=True)
class Frames:
    """The samples of one rank's training thread."""

    samples: FrameSamples
    framework: str | None

    def __len__(self) -> int:
        return len(self.samples.stack)

    @cached_property
    def at_ns(self) -> IntArray:
        return self.samples.at_ns

    def inside(self, intervals: Intervals) -> BoolArray:
        """Return the mask of the samples within disjoint, sorted intervals, shape (samples,)."""
        start, end = intervals
        if not len(start):
            return np.zeros(len(self), np.bool_)
        at = np.searchsorted(start, self.at_ns, side="right") - 1
        mask: BoolArray = (at >= 0) & (self.at_ns < end[np.maximum(at, 0)])
        return mask

    @cached_property
    def lines(self) -> list[str | None]:
        """The innermost line of user code of each distinct stack."""
        return [innermost(stack, self.framework) for stack in self.samples.stacks]

    @cached_property
    def reports(self) -> BoolArray:
        """Whether each sample was taken while the training wrote checkpoints, logs or statistics, shape (samples,)."""
        return self._where(lambda stack: bool(REPORTS.search(_without_folders(_after_layers(stack)))))

    def naming(self, pattern: re.Pattern[str]) -> BoolArray:
        """Return the mask of the samples in whose stack the pattern occurs, shape (samples,)."""
        return self._where(lambda stack: bool(pattern.search(stack)))

    def preparing(self, pattern: re.Pattern[str]) -> BoolArray:
        """Return the mask of the samples in whose stack the pattern occurs, shape (samples,). The code of the functions
        that call it counts, too, because it may build the arguments."""
        callers = {_caller(stack, pattern) for stack in self.samples.stacks if pattern.search(stack)}
        return self._where(lambda stack: bool(pattern.search(stack)) or _innermost_function(stack) in callers)

    def _where(self, test: Callable[[str], bool]) -> BoolArray:
        stacks = np.array([test(stack) for stack in self.samples.stacks], np.bool_)
        mask: BoolArray = np.append(stacks, False)[np.array(self.samples.stack, np.int64)]
        return mask

    def time_ns(self, mask: BoolArray) -> IntArray:
        """Return the time that each sample stands for: up to the next sample. 0 for samples outside the mask."""
        elapsed_ns = np.diff(self.at_ns, append=self.at_ns[-1:])
        times: IntArray = np.where(mask, np.minimum(elapsed_ns, _LONGEST_NS), 0)
        return times

    def line_of(self, trace: Trace, rows: IntArray) -> str | None:
        """Return the line of user code that most often ran at host events, device work counting at its launch. None if
        there is no sample.

        Python often takes a sample only between two operators. So a sample counts for operators if it lies between two
        of them, or in one. Without such samples, it counts for the operator before or after it."""
        if not len(self) or not len(rows):
            return None
        launched_by = trace.ints("launched_by")[rows]
        chosen = marked(trace, np.where(launched_by != NO_ROW, launched_by, rows))
        parent = trace.ints("parent")
        chosen |= nesting.lies_in(parent, chosen) | nesting.holds(parent, chosen)
        order = operator_order(trace).row
        order = order[np.argsort(trace.ints("start_ns")[order], kind="stable")]
        if not len(order):
            return None
        at = np.searchsorted(trace.ints("start_ns")[order], self.at_ns, side="right") - 1
        before, after = order[np.maximum(at, 0)], order[np.minimum(at + 1, len(order) - 1)]
        between = chosen[before] & (chosen[after] | (self.at_ns < trace.end_ns[before]))
        lines = self.most_common(between) or self.most_common(chosen[before] | chosen[after])
        return lines[0][0] if lines else None

    def most_common(self, mask: BoolArray) -> list[tuple[str, float]]:
        """Return the lines of user code of the chosen samples with their shares, the most frequent first."""
        codes = np.array(self.samples.stack, np.int64)[mask]
        counts = Counter(line for code in codes.tolist() if (line := self.lines[code]) is not None)
        return [(line, count / max(len(codes), 1)) for line, count in counts.most_common()]


def _caller(stack: str, pattern: re.Pattern[str]) -> str | None:
    frames = stack.split(";")
    last = max((at for at, frame in enumerate(frames) if pattern.search(frame)), default=len(frames))
    return _innermost_function(";".join(frames[last + 1 :]))


def _innermost_function(stack: str) -> str | None:
    """Return file and name of the function that ran, None for an empty stack. A comprehension belongs to the function
    around it."""
    functions = (frame for frame in stack.split(";") if frame and not frame.endswith("comp>"))
    return next((_LINE.sub("", frame) for frame in functions), None)


def _after_layers(stack: str) -> str:
    """Return the frames of a stack inside its innermost layer of a network. A layer reports nothing, whatever its
    callers do."""
    return _LAYER.split(stack)[0]


def _without_folders(stack: str) -> str:
    """Return a stack without the folders of its files, whose names say nothing about the work."""
    return ";".join(frame.rpartition("/")[2] for frame in stack.split(";"))


@once
def frames(trace: Trace) -> Frames:
    """Return the samples of the first rank that has any."""
    samples = next((of_rank for _, of_rank in sorted(trace.frame_samples.items()) if of_rank.stack), FrameSamples())
    return Frames(samples, trace.meta.framework)
