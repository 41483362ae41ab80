"""Logs runs for TensorBoard: scalars, tables as text, and the page and CSV files next to the event files."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from perfkit_core.base.system.paths import PathLike, absolute, as_path
from perfkit_core.base.system.spreadsheets import csv_of
from perfkit_core.integrations.trackers.tracker import PAGE, LoggedRun, Tracker

if TYPE_CHECKING:
    import pandas as pd

_ROWS: Final = 50
"""Maximum number of rows of a table in TensorBoard. The CSV file has all."""


def to_tensorboard(logdir: PathLike, samples_per_step: int | None = None) -> Tracker:
    """Return a callback for ``also=[…]`` that logs each recorded cycle into the folder ``logdir`` for TensorBoard.
    ``samples_per_step`` adds samples per second. Raises UsageError if tensorboard is not installed."""
    return TensorboardTracker(as_path(absolute(logdir)), samples_per_step)


class TensorboardTracker(Tracker):
    def __init__(self, logdir: Path, samples_per_step: int | None) -> None:
        super().__init__("tensorboard", "tensorboard", samples_per_step)
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
             for row in table.head(_ROWS).astype(object).where(table.notna(), None).to_numpy()]  # fmt: skip
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)
