"""Samples of the Python frames of a training. They show which line runs where the profiler records no frames."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from perfkit_core.base.algorithms.arrays import IntArray
from perfkit_core.trace.model.schema import Int64


class FrameSamples(msgspec.Struct, frozen=True):
    """The frames of the thread that runs the steps, at regular times.

    - ``stacks``: the distinct stacks, as in the column ``stack``: innermost frame first, separated by ``;``
    - ``after_us``: times of the samples in µs after ``start_ns``, ascending
    - ``stack``: position in ``stacks`` of each sample
    - ``start_ns``: time in ns since 1970
    """

    stacks: tuple[str, ...] = ()
    after_us: tuple[int, ...] = ()
    stack: tuple[int, ...] = ()
    start_ns: Int64 = 0

    def __post_init__(self) -> None:
        """Raise ValueError if a sample has no stack, or a time that does not fit in 64 bits."""
        if len(self.after_us) != len(self.stack) or not all(0 <= at < len(self.stacks) for at in self.stack):
            raise ValueError("samples of frames have no stack")
        if any(abs(self.start_ns + 1000 * after) >= 1 << 63 for after in self.after_us):
            raise ValueError("the times of samples do not fit in 64 bits")

    @property
    def at_ns(self) -> IntArray:
        return np.array(self.after_us, np.int64) * 1000 + self.start_ns


def joined(parts: Sequence[FrameSamples]) -> FrameSamples:
    """Return the samples of several cycles of a process as one."""
    if len(parts) < 2:
        return parts[0] if parts else FrameSamples()
    position = {stack: at for at, stack in enumerate(dict.fromkeys(stack for part in parts for stack in part.stacks))}
    start_ns = min(part.start_ns for part in parts)
    samples = sorted(
        (after + (part.start_ns - start_ns) // 1000, position[part.stacks[stack]])
        for part in parts
        for after, stack in zip(part.after_us, part.stack, strict=True)
    )
    after_us, stack = zip(*samples, strict=True) if samples else ((), ())
    return FrameSamples(tuple(position), after_us, stack, start_ns)
