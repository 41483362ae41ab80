"""What a framework's profiler is told by whoever records the steps of a training, and what it must be able to do."""

from __future__ import annotations

import enum
from typing import Any, Protocol

from perfkit_core.recording.capture import CycleWriter


class Ending(enum.Enum):
    """What has become of the step that was begun last, when a cycle ends."""

    ENDED = enum.auto()
    """It has ended."""
    NOT_TAKEN = enum.auto()
    """It does not take place, or takes place later."""
    BROKEN_OFF = enum.auto()
    """It ended in the middle."""


class StepProfiler(Protocol):
    """A framework's profiler, told what to do by a StepRecording."""

    writer: CycleWriter[Any]

    def warm_up(self, step: int) -> None:
        """Get ready during ``step``; nothing is recorded yet."""

    def start(self, step: int) -> None:
        """Record from now on; ``step`` begins now. Comes after ``warm_up`` or without it."""

    def next(self, step: int) -> None:
        """The running step ends and ``step`` begins."""

    def stop(self, ending: Ending) -> None:
        """Write the cycle. Only a step that has ended is a step; one that was broken off is a finding."""

    def cancel(self) -> None:
        """Stop warming up or recording, and write nothing."""
