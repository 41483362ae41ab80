"""The throughput as metrics of trainers: the numbers are those of ``Throughput``, in the trainers' own logs."""

from __future__ import annotations

import csv
import json
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import perfkit_torch
from perfkit_core.readers.load import load
from perfkit_core.recording.throughput.trainer_metrics import TrainerMetrics, samples_in
from perfkit_torch.throughput import LoaderThroughput
from tests.support.fake_clock import Clock
from tests.torch.test_throughput import Slow

torch = pytest.importorskip("torch")


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The clock of every Throughput that a callback makes."""
    clock = Clock()
    original = LoaderThroughput.__init__
    monkeypatch.setattr(
        LoaderThroughput, "__init__", lambda throughput, warmup: original(throughput, warmup, clock=clock)
    )
    return clock


def test_the_waits_for_any_loader_are_timed() -> None:
    """Reading a sample takes 5 ns, so a batch takes 20 ns. A step computes for 100 ns."""
    clock = Clock()
    throughput = LoaderThroughput(warmup=0, clock=clock)
    loader = torch.utils.data.DataLoader(Slow(clock), batch_size=4)
    own = torch.utils.data.dataloader._BaseDataLoaderIter.__next__
    with throughput:
        for batch in loader:
            clock.advance(100)
            throughput.step(num_samples=len(batch))
        first = throughput.metrics()
        for batch in throughput.reader(loader):  # nothing counts twice
            clock.advance(280)
            throughput.step(num_samples=len(batch))
        second = throughput.metrics()
        nothing = throughput.metrics()
    assert first == {
        "perfkit/reader_cost_ms": pytest.approx(20e-6), "perfkit/batch_cost_ms": pytest.approx(120e-6),
        "perfkit/samples_per_s": pytest.approx(4e9 / 120),
    }  # fmt: skip
    assert second == {
        "perfkit/reader_cost_ms": pytest.approx(20e-6), "perfkit/batch_cost_ms": pytest.approx(300e-6),
        "perfkit/samples_per_s": pytest.approx(4e9 / 300),
    }  # fmt: skip
    assert nothing == {}
    assert torch.utils.data.dataloader._BaseDataLoaderIter.__next__ is own


@pytest.mark.parametrize(
    ("batch", "samples"),
    [
        (torch.ones(3, 2), 3),
        ({"x": "text", "y": [torch.tensor(1.0), torch.ones(5)]}, 5),
        ((), None),
        ("text", None),
        (torch.tensor(1), None),
    ],
)
def test_the_number_of_samples_in_a_batch(batch: Any, samples: int | None) -> None:
    assert samples_in(batch) == samples


def test_errors_of_a_log_are_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    metrics = TrainerMetrics(LoaderThroughput)
    metrics.resume()  # before the training, for example after a validation
    metrics.begin()
    for _ in range(3):
        metrics.step(lambda: 1 // 0)
        metrics.log(lambda values: 1 / 0)
        metrics.log(lambda values: None, every=0)  # as a trainer that never logs
    metrics.end()
    assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == [
        "perfkit: the throughput could not be logged, training continues (ZeroDivisionError: integer division or "
        "modulo by zero)"
    ]


def test_lightning(clock: Clock, tmp_path: Path) -> None:
    """Two epochs of three batches with 4 samples. Reading takes 20 ns, computing 100 ns, and a validation 10,000 ns."""
    lightning = pytest.importorskip("lightning.pytorch")
    from perfkit_torch.integrations.lightning import ThroughputCallback

    class Regression(lightning.LightningModule):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.net = torch.nn.Linear(3, 1)

        def training_step(self, batch: Any, batch_idx: int) -> Any:
            clock.advance(100)
            return self.net(batch).square().mean()

        def validation_step(self, batch: Any, batch_idx: int) -> None:
            clock.advance(10_000)

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=0.1)

    logger = pytest.importorskip("lightning.pytorch.loggers").CSVLogger(tmp_path)
    trainer = lightning.Trainer(
        accelerator="cpu", callbacks=[ThroughputCallback(every=3)], logger=logger, default_root_dir=tmp_path,
        max_epochs=2, enable_progress_bar=False, enable_model_summary=False, enable_checkpointing=False,
    )  # fmt: skip
    loader = torch.utils.data.DataLoader(Slow(clock), batch_size=4)
    trainer.fit(Regression(), loader, torch.utils.data.DataLoader(torch.ones(2, 3), batch_size=2))
    with (Path(logger.log_dir) / "metrics.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if row.get("perfkit/batch_cost_ms")]
    assert [int(row["step"]) for row in rows] == [3, 6]
    for row in rows:
        assert float(row["perfkit/reader_cost_ms"]) == pytest.approx(20e-6)
        assert float(row["perfkit/batch_cost_ms"]) == pytest.approx(120e-6)
        assert float(row["perfkit/samples_per_s"]) == pytest.approx(4e9 / 120)


@pytest.mark.parametrize("samples", [None, 4])
def test_transformers(clock: Clock, tmp_path: Path, samples: int | None) -> None:
    """Six updates of 100 ns. The evaluation after the third of them takes 10,000 ns. The Trainer reads each batch
    before it needs it, from a list, so the waits take no time of this clock."""
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    from perfkit_torch.integrations.transformers import ThroughputCallback

    class Regression(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.net = torch.nn.Linear(4, 1)

        def forward(self, x: Any, labels: Any = None) -> dict[str, Any]:
            clock.advance(100 if self.training else 10_000)
            return {"loss": (self.net(x)[:, 0] - labels).square().mean(), "logits": self.net(x)}

    arguments = transformers.TrainingArguments(
        output_dir=str(tmp_path), per_device_train_batch_size=4, report_to=[], disable_tqdm=True, use_cpu=True,
        save_strategy="no", num_train_epochs=2, logging_steps=3, eval_strategy="epoch",
    )  # fmt: skip
    data = [{"x": [1.0, 2.0, 3.0, 4.0], "labels": 1.0}] * 12
    trainer = transformers.Trainer(Regression(), arguments, train_dataset=data, eval_dataset=data)
    trainer.add_callback(ThroughputCallback(trainer, samples=samples))
    trainer.train()
    logs = [log for log in trainer.state.log_history if "perfkit/batch_cost_ms" in log]
    assert [log["step"] for log in logs] == [3, 6]
    for log in logs:
        assert log["perfkit/batch_cost_ms"] == pytest.approx(100e-6)
        assert log["perfkit/reader_cost_ms"] == 0
        rates = {name: rate for name, rate in log.items() if name.endswith("_per_s") and name.startswith("perfkit/")}
        assert rates == {"perfkit/samples_per_s": 4e7} if samples else {"perfkit/steps_per_s": 1e7}


def test_accelerate(tmp_path: Path) -> None:
    """Accelerate's own profiler and log: a run folder of its scheduled steps, and the metrics in its tracker."""
    accelerate = pytest.importorskip("accelerate")
    from accelerate.tracking import GeneralTracker
    from accelerate.utils import ProfileKwargs

    class Json(GeneralTracker):  # type: ignore[misc]
        name, requires_logging_directory, tracker = "json", False, None

        def store_init_configuration(self, values: dict[str, Any]) -> None:
            pass

        def log(self, values: dict[str, Any], step: int | None = None, **options: Any) -> None:
            with (tmp_path / "log.jsonl").open("a") as file:
                file.write(json.dumps({**values, "step": step}) + "\n")

    profiling = ProfileKwargs(
        activities=["cpu"],
        schedule_option={"wait": 1, "warmup": 1, "active": 2, "repeat": 1},
        on_trace_ready=perfkit_torch.trace_handler(tmp_path / "run"),
        record_shapes=True,
    )
    accelerator = accelerate.Accelerator(cpu=True, kwargs_handlers=[profiling], log_with=[Json()])
    accelerator.init_trackers("test")
    model = torch.nn.Linear(3, 1)
    model, optimizer, loader = accelerator.prepare(
        model,
        torch.optim.SGD(model.parameters(), lr=0.1),
        torch.utils.data.DataLoader(torch.randn(24, 3), batch_size=4),
    )
    with accelerator.profile() as profiler, perfkit_torch.Throughput(warmup=0) as throughput:
        for number, batch in enumerate(throughput.reader(loader)):
            accelerator.backward(model(batch).square().mean())
            optimizer.step()
            optimizer.zero_grad()
            profiler.step()
            throughput.step(num_samples=len(batch))
            if number % 3 == 2:
                accelerator.log(throughput.metrics(), step=number)
    accelerator.end_training()
    trace = load(tmp_path / "run")
    assert trace.ints("step")[trace.rows("kind", "step")].tolist() == [2, 3]
    assert trace.meta.options["record_shapes"]
    logs = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert [log["step"] for log in logs] == [2, 5]
    times_ns, _ = throughput.step_times()
    for log, part in zip(logs, (times_ns[:3], times_ns[3:]), strict=True):
        assert log["perfkit/batch_cost_ms"] == pytest.approx(sum(part) / 3 / 1e6)
        assert log["perfkit/samples_per_s"] == pytest.approx(12 * 1e9 / sum(part))
