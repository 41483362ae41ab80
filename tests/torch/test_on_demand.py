"""torch records on demand: in a process, on all ranks of a job, and in Lightning and Hugging Face's Trainer."""

from __future__ import annotations

import itertools
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import perfkit_torch
from perfkit_torch.record import TorchRecording
from tests.support.demanded_loop import (
    captured,
    check_a_signal_records_a_window,
    check_the_end_within_a_window,
    check_windows_follow_a_planned_one,
    steps_of,
)  # fmt: skip
from tests.support.jobs import check_all_ranks_record_together
from tests.support.paths import ROOT

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.usefixtures("sockets")


def test_windows_on_demand_follow_a_planned_one(tmp_path: Path) -> None:
    handler = perfkit_torch.trace_handler(tmp_path, on_demand=True)
    values = torch.ones(8, 8)
    profiler = torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU], on_trace_ready=handler,
        schedule=perfkit_torch.schedule(wait=1, warmup=1, active=2, repeat=1, on_demand=handler),
    )  # fmt: skip
    check_windows_follow_a_planned_one(profiler, lambda: values @ values, tmp_path, "aten::mm")


def test_a_signal_records_a_window(tmp_path: Path) -> None:
    handler = perfkit_torch.trace_handler(tmp_path, on_demand=True)
    schedule = perfkit_torch.schedule(on_demand=handler, warmup=2)
    profiler = torch.profiler.profile(schedule=schedule, on_trace_ready=handler)
    check_a_signal_records_a_window(profiler, lambda: torch.ones(2) + 1, tmp_path)


def test_a_training_ends_within_its_window(tmp_path: Path) -> None:
    recording = TorchRecording(tmp_path, on_demand=True, activities=[torch.profiler.ProfilerActivity.CPU])
    check_the_end_within_a_window(recording, lambda: torch.ones(2) + 1, tmp_path)


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
