"""Logs runs with Weights & Biases: values of the history, tables, and the page as an artifact."""

from __future__ import annotations

import os
from typing import Any

from perfkit_core.integrations.trackers.tracker import PAGE, LoggedRun, Tracker


def to_wandb(samples_per_step: int | None = None) -> Tracker:
    """Return a callback for ``also=[…]`` that logs each recorded cycle with Weights & Biases, into the active run if
    there is one. Otherwise it begins a run, offline unless WANDB_MODE is set. ``samples_per_step`` adds samples per
    second. Raises UsageError if wandb is not installed."""
    return WandbTracker("wandb", "wandb", samples_per_step)


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
