"""Traces with facts in side tables."""

from collections.abc import Mapping

from perfkit_core.trace.model import frame_samples, timed_steps
from perfkit_core.trace.model.frame_samples import FrameSamples
from perfkit_core.trace.model.timed_steps import TimedSteps
from perfkit_core.trace.model.trace import Trace


def with_samples(trace: Trace, samples: FrameSamples, rank: str = "-") -> Trace:
    return trace.with_tables(frame_samples=frame_samples.to_table({rank: samples}))


def with_clock(trace: Trace, timed: Mapping[str, TimedSteps]) -> Trace:
    return trace.with_tables(step_clock=timed_steps.to_table(timed))
