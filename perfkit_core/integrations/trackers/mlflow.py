"""Logs runs with MLflow: metrics, tables as CSV files, and the page as an HTML artifact."""

from __future__ import annotations

import time
from typing import Any

from perfkit_core.base.system.spreadsheets import csv_of
from perfkit_core.integrations.trackers.tracker import PAGE, LoggedRun, Tracker


def to_mlflow(samples_per_step: int | None = None) -> Tracker:
    """Return a callback for ``also=[…]`` that logs each recorded cycle with MLflow, into the active run if there is
    one. ``samples_per_step`` adds samples per second. Raises UsageError if MLflow is not installed."""
    return MlflowTracker("mlflow", "mlflow", samples_per_step)


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
