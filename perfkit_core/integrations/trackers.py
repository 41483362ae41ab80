"""Experiment trackers: summary figures, tables and the page of a run in MLflow, TensorBoard and Weights & Biases.
docs/trackers.md defines the figures."""

from __future__ import annotations

import os
import time
from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from perfkit_core.base.system.outside_text import csv_of
from perfkit_core.base.system.packages import installed
from perfkit_core.base.system.paths import PathLike, absolute, as_path
from perfkit_core.errors import UsageError
from perfkit_core.recording.writer import WrittenCallback

if TYPE_CHECKING:
    import pandas as pd

    from perfkit_core.ranks.profile import Profile

TABLES: Final = ("steps", "partition", "model", "operators", "kernels")
"""Views whose tables are logged, if they have rows."""
_FIGURES: Final = ("steps", "input_pipeline", "device", "memory_places")
PAGE: Final = "report.html"
_TENSORBOARD_ROWS: Final = 50
"""Maximum number of rows of a table in TensorBoard. The CSV file has all."""


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

    def __init__(self, package: str, samples_per_step: int | None) -> None:
        if not installed(package):
            raise UsageError(f"{package} is not installed", f"pip install {package}")
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


def to_mlflow(samples_per_step: int | None = None) -> Tracker:
    """Return a callback for ``also=[…]`` that logs each recorded cycle with MLflow, into the active run if there is
    one. ``samples_per_step`` adds samples per second. Raises UsageError if MLflow is not installed."""
    return MlflowTracker("mlflow", samples_per_step)


class MlflowTracker(Tracker):
    _started_run: str | None = None

    def active(self) -> str | None:
        import mlflow

        run = mlflow.active_run()
        return None if run is None else str(run.info.run_id)

    def log(self, run: LoggedRun, active: Any) -> str:
        import mlflow

        run_id = active or self._started_run
        if run_id is None:
            with mlflow.start_run(run_name=run.name) as started:
                run_id = self._started_run = str(started.info.run_id)
        client, now_ms = mlflow.MlflowClient(), int(time.time() * 1000)
        metrics = [mlflow.entities.Metric(name, value, now_ms, run.step) for name, value in run.figures.items()]
        client.log_batch(run_id, metrics=metrics)
        folder = f"perfkit/{run.label}"
        for name, table in run.tables.items():
            client.log_text(run_id, csv_of(table), f"{folder}/{name}.csv")
        client.log_text(run_id, run.page, f"{folder}/{PAGE}")
        return f"MLflow, run {run_id} at {mlflow.get_tracking_uri()}"


def to_tensorboard(logdir: PathLike, samples_per_step: int | None = None) -> Tracker:
    """Return a callback for ``also=[…]`` that logs each recorded cycle into the folder ``logdir`` for TensorBoard.
    ``samples_per_step`` adds samples per second. Raises UsageError if tensorboard is not installed."""
    return TensorboardTracker(as_path(absolute(logdir)), samples_per_step)


class TensorboardTracker(Tracker):
    def __init__(self, logdir: Path, samples_per_step: int | None) -> None:
        super().__init__("tensorboard", samples_per_step)
        self._logdir = logdir

    def active(self) -> None:
        """Return None: TensorBoard has no runs but folders."""

    def log(self, run: LoggedRun, active: Any) -> str:
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.plugins.scalar.summary_v2 import scalar_pb
        from tensorboard.plugins.text.summary_v2 import text_pb
        from tensorboard.summary.writer.event_file_writer import EventFileWriter

        folder = self._logdir / "perfkit" / run.label
        folder.mkdir(parents=True, exist_ok=True)
        (folder / PAGE).write_text(run.page, encoding="utf-8", errors="backslashreplace")
        for name, table in run.tables.items():
            (folder / f"{name}.csv").write_text(csv_of(table), encoding="utf-8", newline="")
        texts = {name: _markdown(table) for name, table in run.tables.items()}
        summaries = [scalar_pb(name, value) for name, value in run.figures.items()]
        summaries += [text_pb(f"perfkit/{name}", text) for name, text in texts.items()]
        summaries.append(text_pb("perfkit/page", f"{folder / PAGE}"))
        writer = EventFileWriter(str(self._logdir))
        for summary in summaries:
            writer.add_event(Event(wall_time=time.time(), step=run.step, summary=summary))
        writer.close()
        return f"TensorBoard, folder {self._logdir}"


def _markdown(table: pd.DataFrame) -> str:
    rows = [list(map(str, table.columns)), ["---"] * len(table.columns)]
    rows += [["" if value is None else str(value).replace("|", "\\|") for value in row]
             for row in table.head(_TENSORBOARD_ROWS).astype(object).where(table.notna(), None).to_numpy()]  # fmt: skip
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def to_wandb(samples_per_step: int | None = None) -> Tracker:
    """Return a callback for ``also=[…]`` that logs each recorded cycle with Weights & Biases, into the active run if
    there is one. Otherwise it begins a run, offline unless WANDB_MODE is set. ``samples_per_step`` adds samples per
    second. Raises UsageError if wandb is not installed."""
    return WandbTracker("wandb", samples_per_step)


class WandbTracker(Tracker):
    _started_run: Any = None

    def active(self) -> Any:
        import wandb

        return wandb.run

    def log(self, run: LoggedRun, active: Any) -> str:
        import wandb

        target = active or self._started_run
        if target is None:
            target = self._started_run = wandb.init(mode=os.environ.get("WANDB_MODE", "offline"), name=run.name)
        plain = {name: table.astype(object).where(table.notna(), None) for name, table in run.tables.items()}
        tables = {f"perfkit/{name}": wandb.Table(dataframe=table) for name, table in plain.items()}
        # In a run of the program, the values wait for its next log, so that its step numbers stay as they are.
        target.log({"perfkit/step": run.step, **run.figures, **tables}, commit=active is None)
        artifact = wandb.Artifact(f"perfkit-{target.id}-{run.label}", type="profile")
        with artifact.new_file(PAGE, encoding="utf-8") as file:
            file.write(run.page)
        target.log_artifact(artifact)
        return f"Weights & Biases, run {target.id} in {target.dir}"

    def close(self) -> None:
        if self._started_run is not None:
            self._started_run.finish()
            self._started_run = None
