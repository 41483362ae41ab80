"""Runs in MLflow, TensorBoard and Weights & Biases: the real packages store them offline, and their own readers return
the figures that were computed by hand."""

from __future__ import annotations

import csv
import importlib.util
import json
import struct
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import perfkit_core
from perfkit_core.errors import UsageError
from perfkit_core.integrations.trackers import MlflowTracker, Tracker, logged_run, to_mlflow, to_tensorboard, to_wandb
from perfkit_core.ranks.profile import LoadedProfile
from perfkit_core.recording.writer import CycleWriter, DetachedCycle
from perfkit_core.trace.storage.store import write_cycle
from tests.cli.conftest import Perfkit, perfkit
from tests.support.events import host, trace
from tests.support.logged import FIGURES, HOSTILE, logged_trace

__all__ = ["perfkit"]
RATE = {"perfkit/samples_per_s": pytest.approx(30 / 0.015)}
"""30 samples in a step of 15 ms."""


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the packages warn about each other
        yield


@pytest.fixture
def run(tmp_path: Path) -> Path:
    write_cycle(logged_trace(), tmp_path / "baseline")
    return tmp_path / "baseline"


@pytest.fixture
def mlflow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", (tmp_path / "mlruns").as_uri())
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    module = pytest.importorskip("mlflow", reason="needs mlflow-skinny")
    module.set_tracking_uri((tmp_path / "mlruns").as_uri())
    yield module
    while module.active_run() is not None:
        module.end_run()


@pytest.fixture
def wandb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    for name in ("WANDB_DIR", "WANDB_CACHE_DIR", "WANDB_CONFIG_DIR", "WANDB_DATA_DIR", "WANDB_ARTIFACT_DIR"):
        (tmp_path / "wandb-files").mkdir(exist_ok=True)
        monkeypatch.setenv(name, str(tmp_path / "wandb-files"))
    monkeypatch.setenv("WANDB_SILENT", "true")
    monkeypatch.setenv("WANDB_ERROR_REPORTING", "false")
    monkeypatch.delenv("WANDB_MODE", raising=False)
    module = pytest.importorskip("wandb")
    yield module
    module.teardown()


def handled(folder: Path, tracker: Any, rank: int | None = 0) -> None:
    """Record a cycle with a handler that has the tracker, and wait until it is written."""
    writer: CycleWriter[None] = CycleWriter(folder, lambda *_: DetachedCycle(lambda: logged_trace(rank)), [tracker])
    writer(None)
    writer.flush()


def rows_of(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(text.splitlines()))


def test_the_figures_are_those_computed_by_hand() -> None:
    logged = logged_run(LoadedProfile(logged_trace()), "baseline", samples_per_step=30)
    assert logged.figures == FIGURES | RATE
    assert (logged.label, logged.step) == ("steps-4-5", 5)
    assert logged.tables["steps"]["dur_ns"].tolist() == [10_000_000, 20_000_000]
    assert HOSTILE not in logged.page
    assert logged.page.startswith("<!DOCTYPE html>")


def test_what_was_not_recorded_is_left_out() -> None:
    steps = [host("step 3", "step", 0, 7_000_000, step=3), host("op", "operator", 0, 10)]
    logged = logged_run(LoadedProfile(trace(steps)), "baseline")
    assert logged.figures == {"perfkit/step_time_ms": 7.0}
    assert logged.label == "steps-3"
    nothing = logged_run(LoadedProfile(trace([host("op", "operator", 0, 10)])), "baseline", samples_per_step=5)
    assert (nothing.figures, nothing.label, nothing.step) == ({}, "recording", 0)
    assert set(nothing.tables) == {"model", "operators"} or "operators" in nothing.tables


def test_mlflow_logs_into_the_active_run(mlflow: Any, tmp_path: Path) -> None:
    """The cycle is written in another thread, where MLflow has no active run."""
    with mlflow.start_run() as active:
        handled(tmp_path / "baseline", to_mlflow(samples_per_step=30))
        assert mlflow.active_run().info.run_id == active.info.run_id
    client = mlflow.MlflowClient()
    assert client.get_run(active.info.run_id).data.metrics == FIGURES | RATE
    (metric,) = client.get_metric_history(active.info.run_id, "perfkit/step_time_ms")
    assert metric.step == 5
    folder = Path(client.download_artifacts(active.info.run_id, "perfkit/steps-4-5"))
    assert {path.name for path in folder.iterdir()} == {
        "report.html", "steps.csv", "partition.csv", "model.csv", "operators.csv", "kernels.csv"
    }  # fmt: skip
    assert [int(row["dur_ns"]) for row in rows_of((folder / "steps.csv").read_text())] == [10_000_000, 20_000_000]
    (operator,) = csv.DictReader((folder / "operators.csv").open(newline=""))
    assert operator["name"] == HOSTILE
    assert "<!DOCTYPE html>" in (folder / "report.html").read_text()


def test_mlflow_begins_one_run_for_all_cycles(mlflow: Any, tmp_path: Path) -> None:
    tracker = to_mlflow()
    for _ in range(2):
        handled(tmp_path / "baseline", tracker)
    (found,) = mlflow.MlflowClient().search_runs(["0"])
    assert found.info.run_name == "baseline"
    assert found.data.metrics == FIGURES


def test_tensorboard(tmp_path: Path) -> None:
    """TensorBoard stores numbers with 32 bits."""
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.util import tensor_util

    handled(tmp_path / "baseline", to_tensorboard(tmp_path / "logs", samples_per_step=30))
    events = EventAccumulator(str(tmp_path / "logs"), size_guidance={"tensors": 0}).Reload()
    tensors = {
        tag: [(event.step, tensor_util.make_ndarray(event.tensor_proto)) for event in events.Tensors(tag)]
        for tag in events.Tags()["tensors"]
    }
    assert all([step for step, _ in values] == [5] for values in tensors.values())
    texts = {tag: values[0][1].item().decode() for tag, values in tensors.items() if values[0][1].dtype == object}
    figures = {tag: float(values[0][1]) for tag, values in tensors.items() if tag not in texts}
    assert figures == {name: pytest.approx(value.expected if hasattr(value, "expected") else value, rel=1e-6)
                       for name, value in (FIGURES | RATE).items()}  # fmt: skip
    assert set(texts) == {f"perfkit/{name}" for name in ("steps", "partition", "model", "operators", "kernels", "page")}
    assert texts["perfkit/steps"].splitlines()[2].split(" | ")[3] == "10000000"
    folder = tmp_path / "logs" / "perfkit" / "steps-4-5"
    assert texts["perfkit/page"] == str(folder / "report.html")
    assert "<!DOCTYPE html>" in (folder / "report.html").read_text()
    assert len(rows_of((folder / "steps.csv").read_text())) == 2


def records_of(path: Path) -> Iterator[bytes]:
    """Yield the records of a log of wandb. Its format is that of LevelDB: blocks of 32 KiB with parts of records."""
    content, at, record = path.read_bytes(), 7, b""  # after wandb's own header
    assert content.startswith(b":W&B")
    while at + 7 <= len(content):
        left = 32768 - at % 32768
        if left < 7:  # the block is filled with zeros
            at += left
            continue
        _, length, kind = struct.unpack_from("<IHB", content, at)
        record += content[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):  # complete, or the last part
            yield record
            record = b""


def stored_records(folder: Path) -> tuple[dict[str, Any], list[Any]]:
    """Return the values of the history, and the artifacts, of the only offline run below a folder. wandb's own schema
    reads the records."""
    import wandb
    from wandb.proto import wandb_internal_pb2

    wandb.teardown()  # its process writes the rest
    (path,) = folder.rglob("*.wandb")
    values: dict[str, Any] = {}
    artifacts = []
    for content in records_of(path):
        record = wandb_internal_pb2.Record()
        record.ParseFromString(content)
        for item in record.history.item:
            values[item.key or "/".join(item.nested_key)] = json.loads(item.value_json)
        if record.HasField("artifact"):
            artifacts.append(record.artifact)
        elif record.request.HasField("log_artifact"):
            artifacts.append(record.request.log_artifact.artifact)
    return values, artifacts


@pytest.mark.parametrize("active", [True, False])
def test_wandb(wandb: Any, tmp_path: Path, active: bool) -> None:
    """The values wait for the next log of an active run, whose step numbers stay as they are."""
    own = wandb.init(mode="offline", project="test") if active else None
    tracker = to_wandb(samples_per_step=30)
    if own:
        own.log({"loss": 1.0}, step=7)
    handled(tmp_path / "baseline", tracker)
    if own:
        own.log({"loss": 0.5}, step=8)
        own.finish()
    tracker.close()
    values, artifacts = stored_records(tmp_path / "wandb-files")
    expected = FIGURES | RATE
    assert {name: value for name, value in values.items() if name in expected} == expected
    assert values["perfkit/step"] == 5
    if active:
        assert (values["loss"], values["_step"]) == (0.5, 8)
    assert values["perfkit/steps/_type"] == "table-file"
    assert values["perfkit/steps/nrows"] == 2
    pages = [artifact for artifact in artifacts if artifact.type == "profile"]
    assert [entry.path for artifact in pages for entry in artifact.manifest.contents] == ["report.html"]


class Failing(Tracker):
    """A tracker that fails before or after the cycle is written."""

    def __init__(self, where: str) -> None:
        super().__init__("json", None)
        self.where = where

    def active(self) -> Any:
        if self.where == "active":
            raise OSError("no network")

    def log(self, run: Any, active: Any) -> str:
        raise ConnectionError("no network")


@pytest.mark.parametrize("where", ["active", "log"])
def test_an_error_of_a_tracker_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture, where: str) -> None:
    handled(tmp_path / "run", Failing(where))
    (message,) = (record.getMessage() for record in caplog.records if record.levelname == "ERROR")
    assert "failed, training continues" in message
    assert "no network" in message
    assert len(list((tmp_path / "run").glob("*.parquet"))) == 1
    assert not (tmp_path / "run" / "INCOMPLETE").exists()


class Collecting(Tracker):
    def __init__(self) -> None:
        super().__init__("json", None)
        self.logged: list[tuple[str, Any]] = []
        self.threads: list[str] = []

    def active(self) -> Any:
        return "active"

    def log(self, run: Any, active: Any) -> str:
        self.logged.append((run.label, active))
        self.threads.append(threading.current_thread().name)
        return ""


@pytest.mark.parametrize(("rank", "logged"), [(None, 1), (0, 1), (1, 0)])
def test_only_rank_0_is_logged(tmp_path: Path, rank: int | None, logged: int) -> None:
    tracker = Collecting()
    writer: CycleWriter[None] = CycleWriter(
        tmp_path, lambda *_: DetachedCycle(lambda: logged_trace(rank)), [tracker],
        lambda: perfkit_place(rank),
    )  # fmt: skip
    writer(None)
    writer.flush()
    assert tracker.logged == [("steps-4-5", "active")] * logged
    assert tracker.threads == ["perfkit-writer"] * logged


def perfkit_place(rank: int | None) -> Any:
    from perfkit_core.recording.environment import ProcessRank

    return ProcessRank(rank, None if rank is None else 2)


@pytest.mark.parametrize("package", ["mlflow", "tensorboard", "wandb"])
def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, package: str) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    make = getattr(importlib.import_module("perfkit"), f"to_{package}")
    with pytest.raises(UsageError, match=f"{package} is not installed; pip install {package}"):
        make(tmp_path) if package == "tensorboard" else make()


@pytest.mark.parametrize("samples", [0, -1, 2.5, "3"])
def test_wrong_numbers_of_samples_are_refused(samples: Any) -> None:
    with pytest.raises(UsageError, match="give a whole number of 1 or more"):
        MlflowTracker("json", samples)


def test_the_command_logs_with_mlflow(mlflow: Any, run: Path, perfkit: Perfkit) -> None:
    code, out, err = perfkit("log", run, "--to", "mlflow", "--samples-per-step", "30")
    assert (code, out) == (0, "")
    (found,) = mlflow.MlflowClient().search_runs(["0"])
    assert found.data.metrics == FIGURES | RATE
    assert f"logged 5 figures, 5 tables and the page with MLflow, run {found.info.run_id} at file:" in err


def test_the_command_logs_for_tensorboard(run: Path, perfkit: Perfkit, tmp_path: Path) -> None:
    """By default, the event files are in the run folder, which remains one run."""
    pytest.importorskip("tensorboard")
    assert perfkit("log", run, "--to", "tensorboard")[0] == 0
    assert list(run.glob("events.out.tfevents*"))
    assert perfkit_core.load(run).meta.ranks == (0,)
    assert len(perfkit_core.list_runs(tmp_path)) == 1
    file = next(run.glob("*.parquet"))
    code, _, err = perfkit("log", file, "--to", "tensorboard")
    assert (code, "TensorBoard needs a folder for its event files; use -o DIR" in err) == (2, True)


def test_the_command_logs_with_wandb(wandb: Any, run: Path, perfkit: Perfkit, tmp_path: Path) -> None:
    code, _, err = perfkit("log", run, "--to", "wandb")
    assert code == 0, err
    values, _ = stored_records(tmp_path / "wandb-files")
    assert {name: value for name, value in values.items() if name in FIGURES} == FIGURES


def test_errors_of_a_tracker_are_one_line(
    mlflow: Any,
    run: Path,
    perfkit: Perfkit,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(mlflow, "start_run", lambda **_: 1 / 0)
    code, _, err = perfkit("log", run, "--to", "mlflow")
    assert code == 2
    assert err.startswith("perfkit: error: mlflow failed (ZeroDivisionError: division by zero)")
    assert perfkit("log", run, "--to", "wandb", "-o", "x")[0] == 2
