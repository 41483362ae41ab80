"""torch records on demand: in a process, on all ranks of a job, and in Lightning and Hugging Face's Trainer."""

from __future__ import annotations

import itertools
import os
import signal
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import perfkit_torch
from perfkit_core.api import summarize
from perfkit_core.readers.load import load
from tests.support.demanded_loop import captured, while_running
from tests.support.jobs import check_all_ranks_record_together
from tests.support.paths import ROOT

torch = pytest.importorskip("torch")


def steps_of(folder: Path) -> list[int]:
    steps: list[int] = summarize(folder, "steps")["step"].tolist()
    return steps


def test_windows_on_demand_follow_a_planned_one(tmp_path: Path) -> None:
    """The steps before a window are timed, so the recording knows what a step takes without the profiler."""
    handler = perfkit_torch.trace_handler(tmp_path, on_demand=True)
    values = torch.ones(8, 8)
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU], on_trace_ready=handler,
        schedule=perfkit_torch.schedule(wait=1, warmup=1, active=2, repeat=1, on_demand=handler),
    ) as profiler:  # fmt: skip

        def step() -> None:
            values @ values
            profiler.step()

        for _ in range(5):
            step()
        for _ in range(2):
            accepted, (recorded,) = while_running(lambda: captured(str(os.getpid()), 3), step)
            assert recorded.path
            window = list(range(accepted.first, accepted.last + 1))
            trace = load(recorded.path)
            assert trace.ints("step")[trace.rows("kind", "step")].tolist() == window
            products = trace.ints("step")[trace.rows("name", "aten::mm")].tolist()
            assert products == window
        assert steps_of(tmp_path)[:2] == [2, 3]
    assert len(steps_of(tmp_path)) == 8


def test_a_signal_records_a_window(tmp_path: Path) -> None:
    handler = perfkit_torch.trace_handler(tmp_path, on_demand=True)
    schedule = perfkit_torch.schedule(on_demand=handler, warmup=2)
    with torch.profiler.profile(schedule=schedule, on_trace_ready=handler) as profiler:
        for number in range(20):
            if number == 4:
                signal.raise_signal(signal.SIGUSR2)
            torch.ones(2) + 1
            profiler.step()
    assert steps_of(tmp_path) == list(range(7, 17))


def test_lightning_records_on_demand(tmp_path: Path) -> None:
    from perfkit_torch.integrations.lightning import PerfkitCallback

    lightning = pytest.importorskip("lightning.pytorch")

    class Regression(lightning.LightningModule):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.net = torch.nn.Linear(4, 1)

        def training_step(self, batch: Any, batch_idx: int) -> Any:
            return self.net(batch).square().mean()

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=0.1)

    callback = PerfkitCallback(tmp_path / "run", on_demand=True)
    progress = itertools.count()

    class Stop(lightning.Callback):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            self.request: Any = None

        def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
            if next(progress) == 3:
                self.request = ThreadPoolExecutor(1).submit(captured, str(tmp_path / "run"), 2)
            trainer.should_stop = self.request is not None and self.request.done()

    stop = Stop()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trainer = lightning.Trainer(
            accelerator="cpu", callbacks=[callback, stop], default_root_dir=tmp_path, logger=False, max_epochs=-1,
            enable_progress_bar=False, enable_model_summary=False, enable_checkpointing=False,
        )  # fmt: skip
        trainer.fit(Regression(), torch.utils.data.DataLoader(torch.randn(8, 4), batch_size=2))
    accepted, _ = stop.request.result()
    assert steps_of(tmp_path / "run") == [accepted.first, accepted.last]


@pytest.mark.slow
def test_all_ranks_of_torchrun_record_together(tmp_path: Path) -> None:
    """DistributedDataParallel reduces its only bucket of gradients in each step."""
    launcher = ["torch.distributed.run", "--nproc-per-node", "4"]
    check_all_ranks_record_together(launcher, ROOT / "tests/support/torch_job.py", tmp_path / "run", 1)
