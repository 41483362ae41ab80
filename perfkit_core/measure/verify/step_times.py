"""Time the steps of a training process without a profiler. When the process exits, the step times go to a file.

The training script need not use perfkit. A step lasts from the end of one update of the first optimizer to the end of
its next update. This code runs inside the measured process, so it imports as little as possible, and never raises."""

from __future__ import annotations

import atexit
import functools
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from perfkit_core.base.system.packages import FirstImport

if TYPE_CHECKING:
    from perfkit_core.recording.throughput.loop import Throughput

FOLDER: Final = "PERFKIT_STEP_TIMES"
"""Environment variable with the folder into which each process writes its step times."""
FRAMEWORKS: Final = "PERFKIT_STEP_FRAMEWORKS"
"""Environment variable with the frameworks whose optimizers are timed, separated by commas."""
STARTUP: Final = Path(__file__).resolve().parent / "startup"
"""If this folder is in ``PYTHONPATH``, every new Python process calls :func:`install` when it starts."""


@dataclass(frozen=True, slots=True)
class StepTimes:
    """The durations of the steps of one process in ns, in their order. ``timed_by`` is the name of the clock."""

    framework: str
    timed_by: str
    step_ns: tuple[int, ...]

    @property
    def mean_ns(self) -> float:
        """Mean step. A median would hide steps that wait for data loader workers."""
        return sum(self.step_ns) / len(self.step_ns)


class OptimizerSteps:
    """The timer of the steps of this process. The first update of the optimizer starts the first step."""

    def __init__(self, throughput: Throughput) -> None:
        self._throughput = throughput
        self._begun = False

    def updated(self) -> None:
        if self._begun:
            self._throughput.step()
        else:
            self._begun = True
            self._throughput.start()

    def times(self) -> tuple[Sequence[int], str]:
        """Stop the timer, wait for the device, and return the durations in ns and the name of the clock."""
        if not self._begun:
            return (), ""
        self._throughput.stop()
        return self._throughput.step_times()


def environment(folder: Path, frameworks: Sequence[str], inherited: Mapping[str, str]) -> dict[str, str]:
    """Return an environment in which every Python process writes its step times into ``folder``."""
    path = [str(STARTUP), *filter(None, [inherited.get("PYTHONPATH")])]
    ours = {"PYTHONPATH": os.pathsep.join(path), FOLDER: str(folder), FRAMEWORKS: ",".join(frameworks)}
    return {**inherited, **ours}


def install() -> None:
    """Time the steps of each framework that :data:`FRAMEWORKS` names. Timing starts once the framework is imported."""
    folder = os.environ.get(FOLDER)
    for framework in filter(None, os.environ.get(FRAMEWORKS, "").split(",") if folder else ()):
        FirstImport((framework,), functools.partial(_guarded, _begin, Path(str(folder)))).__enter__()


def _begin(folder: Path, framework: str) -> None:
    from perfkit_core.plugins.manager import get_plugins

    start = get_plugins().framework(framework).step_timer()
    if start is not None:
        atexit.register(_guarded, _write, folder, framework, start(), os.getpid())


def _write(folder: Path, framework: str, steps: OptimizerSteps, pid: int) -> None:
    if os.getpid() != pid:  # This is a forked child, which runs the exit handlers of its parent.
        return
    times, timed_by = steps.times()
    if not len(times):
        return
    import msgspec

    temporary = folder / f".{framework}-{pid}"
    temporary.write_bytes(msgspec.json.encode(StepTimes(framework, timed_by, tuple(map(int, times)))))
    temporary.replace(folder / f"{framework}-{pid}.json")


def _guarded(act: Callable[..., None], *arguments: object) -> None:
    # No error may reach the training. The process that reads the files reports missing step times.
    try:
        act(*arguments)
    except Exception as error:
        from perfkit_core.base.system import failures

        failures.log("the steps cannot be timed", error)


def read(folder: Path) -> list[StepTimes]:
    """Return the step times that the processes of a command wrote, one item per process."""
    import msgspec

    return [msgspec.json.decode(path.read_bytes(), type=StepTimes) for path in sorted(folder.glob("*.json"))]
