"""torch records on demand: in a process, on all ranks of a job, and in Lightning and Hugging Face's Trainer."""

from __future__ import annotations

import itertools
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.support.demanded_loop import (
    captured,
    steps_of,
)  # fmt: skip

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.usefixtures("sockets")


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
