"""The throughput as metrics of trainers: the numbers are those of ``Throughput``, in the trainers' own logs."""

from __future__ import annotations

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
