"""What all trackers log of a run, and when. docs/trackers.md defines the figures."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from perfkit_core.base.system.packages import installed
from perfkit_core.errors import UsageError
from perfkit_core.recording.writer import WrittenCallback

if TYPE_CHECKING:
    import pandas as pd

    from perfkit_core.ranks.profile import Profile

TABLES: Final = ("steps", "partition", "model", "operators", "kernels")
"""Views whose tables are logged, if they have rows."""
_FIGURES: Final = ("steps", "input_pipeline", "device", "memory_places")
PAGE: Final = "report.html"


@dataclass(frozen=True, slots=True)
class LoggedRun:
    """What a tracker gets. ``label`` names the recorded steps, and ``step`` is the last of them."""

    name: str
    label: str
    step: int
    figures: Mapping[str, float]
    tables: Mapping[str, pd.DataFrame]
    page: str


def logged_run(profile: Profile, name: str, samples_per_step: int | None = None) -> LoggedRun:
    """Return what is logged of a profile. Figures and tables that are unknown or empty are left out."""
    from perfkit_core.output.report.summary import choose_views
    from perfkit_core.pages.profile import run_report
    from perfkit_core.plugins.contracts import ViewRequest
    from perfkit_core.plugins.manager import get_plugins

    computed = profile.compute(choose_views(dict.fromkeys((*_FIGURES, *TABLES))), ViewRequest())
    tables, steps = computed.tables, computed.tables["steps"]["step"]
    span = (f"{number}" for number in dict.fromkeys((steps.min(), steps.max()))) if len(steps) else ()
    unprofiled = computed.timed.time(computed.timed.unprofiled())
    numbers = dict(figures(tables, unprofiled.wall_ns if unprofiled else None, samples_per_step))
    return LoggedRun(
        name,
        "-".join(("steps", *span)) if len(steps) else "recording",
        int(steps.max()) if len(steps) else 0,
        numbers,
        {name: tables[name] for name in TABLES if len(tables[name])},
        get_plugins().renderers()["html"].render(run_report(profile)),
    )


def figures(
    tables: Mapping[str, pd.DataFrame], unprofiled_ns: int | None, samples_per_step: int | None
) -> dict[str, float]:
    """Return the summary figures by name, from the tables of the views. The names end with the units."""
    times = tables["steps"]["dur_ns"]
    waits = tables["input_pipeline"]["input_wait_ns"].dropna()
    busy = tables["device"]["busy_in_steps_ratio"].dropna()
    peaks = tables["memory_places"]["peak_bytes"].dropna()
    by_name: dict[str, float] = {}
    if len(times):
        by_name["perfkit/step_time_ms"] = float(times.median()) / 1e6
    if unprofiled_ns is not None:
        by_name["perfkit/unprofiled_step_time_ms"] = unprofiled_ns / 1e6
    if len(waits):
        by_name["perfkit/data_wait_ms"] = float(waits.median()) / 1e6
    if len(busy):
        by_name["perfkit/device_idle_ratio"] = 1 - float(busy.mean())
    if len(peaks):
        by_name["perfkit/peak_memory_bytes"] = float(peaks.max())
    step_ns = unprofiled_ns or (float(times.median()) if len(times) else 0)
    if samples_per_step is not None and step_ns:
        by_name["perfkit/samples_per_s"] = samples_per_step * 1e9 / step_ns
    return by_name


class Tracker(WrittenCallback):
    """A callback for ``also=[…]`` that logs each cycle of rank 0 after it has been written. Raises UsageError if the
    package of the tracker is missing."""

    def __init__(self, package: str, install: str, samples_per_step: int | None) -> None:
        if not installed(package):
            raise UsageError(f"{package} is not installed", f"pip install {install}")
        if samples_per_step is not None and (not isinstance(samples_per_step, int) or samples_per_step < 1):
            raise UsageError(f"samples_per_step is {samples_per_step!r}", "give a whole number of 1 or more")
        self.samples_per_step = samples_per_step

    def __call__(self, profiler: Any) -> Callable[[Path], None]:
        active = self.active()  # the background thread may not see it
        return lambda path: self._log_cycle(path, active)

    def _log_cycle(self, path: Path, active: Any) -> None:
        from perfkit_core.ranks.profile import LoadedProfile
        from perfkit_core.readers.run_folder import read_stored

        trace = read_stored(path)
        if not trace.meta.ranks or trace.meta.ranks[0] == 0:
            self.log(logged_run(LoadedProfile(trace), path.parent.name, self.samples_per_step), active)

    @abstractmethod
    def active(self) -> Any:
        """Return the run of the tracker that the program has begun, or None."""

    @abstractmethod
    def log(self, run: LoggedRun, active: Any) -> str:
        """Log a run into the active run of the tracker, or else into one of its own. Return where it is."""

    def close(self) -> None:
        """End the tracker's own run, if there is one."""
