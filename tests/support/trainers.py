"""Training frameworks with one interface: each trains the same small regression, in epochs of six batches.

Each pass through the model has the label ``training`` or ``validating``. ``on_batch`` is called with it, within the
batch."""

from __future__ import annotations

import csv
import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.frameworks import FRAMEWORKS, Framework

BATCHES = 6
SAMPLES = 2
"""Number of samples in a batch."""

OnBatch = Callable[[str], None]
Logs = dict[int, dict[str, float]]
"""Number of finished steps → logged metrics of perfkit."""


def nothing(label: str) -> None:
    pass


class Trainer:
    """A training framework. ``fit`` trains and returns the step numbers that the framework counted."""

    framework: str
    module: str
    """perfkit's module with the callbacks."""
    writes_at_exceptions = False
    """Whether the callback is told about exceptions of the training."""
    other_profiler = "another torch profiler is running"

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.native: Framework = FRAMEWORKS[self.framework]()

    def callback(self, *args: Any, **kwargs: Any) -> Any:
        return importlib.import_module(self.module).PerfkitCallback(*args, **kwargs)

    def throughput(self, *args: Any, **kwargs: Any) -> Any:
        return importlib.import_module(self.module).ThroughputCallback(*args, **kwargs)

    def forward(self, net: Any, x: Any, training: bool, on_batch: OnBatch) -> Any:
        label = "training" if training else "validating"
        with self.native.label(label):
            on_batch(label)
            return net(x)


class Lightning(Trainer):
    framework = "torch"
    module = "perfkit_torch.integrations.lightning"
    package = "lightning.pytorch"
    writes_at_exceptions = True
    reading_ns = 5
    """Time to read a sample in ``logs``."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.lightning = pytest.importorskip(self.package, reason=f"needs {self.package}")

    def fit(
        self, *callbacks: Any, epochs: int = 2, validate: bool = False, on_batch: OnBatch = nothing,
        resume: Path | None = None, on_read: Callable[[], None] = lambda: None, **options: Any,
    ) -> list[int]:  # fmt: skip
        torch, forward = self.native.module, self.forward
        seen: list[int] = []

        class Regression(self.lightning.LightningModule):  # type: ignore[misc, name-defined]
            def __init__(self) -> None:
                super().__init__()
                self.net = torch.nn.Linear(4, 1)

            def training_step(self, batch: Any, batch_idx: int) -> Any:
                seen.append(self.trainer.global_step)
                return forward(self.net, batch, True, on_batch).square().mean()

            def validation_step(self, batch: Any, batch_idx: int) -> None:
                forward(self.net, batch, False, on_batch)

            def configure_optimizers(self) -> Any:
                return torch.optim.SGD(self.parameters(), lr=0.1)

        class Rows(torch.utils.data.Dataset):  # type: ignore[misc, name-defined]
            def __len__(self) -> int:
                return BATCHES * SAMPLES

            def __getitem__(self, index: int) -> Any:
                on_read()
                return torch.full((4,), float(index))

        data = torch.utils.data.DataLoader(Rows(), batch_size=SAMPLES)
        trainer = self.lightning.Trainer(
            accelerator="cpu", callbacks=[*callbacks], default_root_dir=self.folder, max_epochs=epochs,
            limit_val_batches=1.0 if validate else 0, enable_progress_bar=False, enable_model_summary=False,
            **{"enable_checkpointing": False, "logger": False, **options},
        )  # fmt: skip
        trainer.fit(Regression(), data, torch.utils.data.DataLoader(torch.ones(2, 4)), ckpt_path=resume)
        return seen

    def logs(self, on_batch: OnBatch, on_read: Callable[[], None]) -> Logs:
        logger = importlib.import_module(f"{self.package}.loggers").CSVLogger(self.folder)
        self.fit(self.throughput(every=3), validate=True, on_batch=on_batch, on_read=on_read, logger=logger)
        with (Path(logger.log_dir) / "metrics.csv").open() as file:
            rows = [row for row in csv.DictReader(file) if row.get("perfkit/batch_cost_ms")]
        return {int(row["step"]): {k: float(v) for k, v in row.items() if k.startswith("perfkit/")} for row in rows}


class PytorchLightning(Lightning):
    """The older package."""

    package = "pytorch_lightning"


class Transformers(Trainer):
    framework = "torch"
    module = "perfkit_torch.integrations.transformers"
    reading_ns = 0
    """The Trainer reads each batch before it needs it."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.transformers = pytest.importorskip("transformers", reason="needs transformers")
        pytest.importorskip("accelerate", reason="needs accelerate")

    def make(self, *callbacks: Any, seen: list[int], epochs: int = 2, validate: bool = False,
             on_batch: OnBatch = nothing, **options: Any) -> Any:  # fmt: skip
        torch, forward = self.native.module, self.forward

        class Regression(torch.nn.Module):  # type: ignore[misc, name-defined]
            def __init__(self) -> None:
                super().__init__()
                self.net = torch.nn.Linear(4, 1)

            def forward(self, x: Any, labels: Any = None) -> dict[str, Any]:
                output = forward(self.net, x, self.training, on_batch)
                return {"loss": (output[:, 0] - labels).square().mean(), "logits": output}

        class Watch(self.transformers.TrainerCallback):  # type: ignore[misc, name-defined]
            def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
                seen.append(state.global_step)

        arguments = self.transformers.TrainingArguments(
            output_dir=str(self.folder / "trainer"), per_device_train_batch_size=SAMPLES, report_to=[],
            disable_tqdm=True, use_cpu=True, num_train_epochs=epochs,
            **{"save_strategy": "no", "eval_strategy": "epoch" if validate else "no", **options},
        )  # fmt: skip
        data = [{"x": [1.0, 2.0, 3.0, 4.0], "labels": 1.0}] * (BATCHES * SAMPLES)
        return self.transformers.Trainer(
            Regression(), arguments, train_dataset=data, eval_dataset=data, callbacks=[*callbacks, Watch()]
        )

    def fit(self, *callbacks: Any, resume: Path | None = None, **options: Any) -> list[int]:
        seen: list[int] = []
        trainer = self.make(*callbacks, seen=seen, **options)
        trainer.train(resume_from_checkpoint=str(resume) if resume else None)
        return seen

    def logs(self, on_batch: OnBatch, on_read: Callable[[], None]) -> Logs:
        trainer = self.make(seen=[], validate=True, on_batch=on_batch, logging_steps=3)
        trainer.add_callback(self.throughput(trainer, samples=SAMPLES))
        trainer.train()
        logs = [log for log in trainer.state.log_history if "perfkit/batch_cost_ms" in log]
        return {log["step"]: {k: v for k, v in log.items() if k.startswith("perfkit/")} for log in logs}


class Hapi(Trainer):
    """``paddle.Model.fit``, which numbers batches within an epoch."""

    framework = "paddle"
    module = "perfkit_paddle.integrations.hapi"
    reading_ns = 0
    other_profiler = "another Profiler exists in this process"

    def fit(
        self, *callbacks: Any, epochs: int = 2, validate: bool = False, on_batch: OnBatch = nothing, **options: Any
    ) -> list[int]:
        paddle, forward = self.native.module, self.forward
        seen: list[int] = []

        class Regression(paddle.nn.Layer):  # type: ignore[misc, name-defined]
            def __init__(self) -> None:
                super().__init__()
                self.net = paddle.nn.Linear(4, 1)

            def forward(self, x: Any) -> Any:
                return forward(self.net, x, self.training, on_batch)

        class Rows(paddle.io.Dataset):  # type: ignore[misc, name-defined]
            def __getitem__(self, index: int) -> Any:
                return np.full(4, index, np.float32), np.ones(1, np.float32)

            def __len__(self) -> int:
                return BATCHES * SAMPLES

        class Watch(paddle.callbacks.Callback):  # type: ignore[misc, name-defined]
            def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
                self.begun = epoch * BATCHES

            def on_train_batch_begin(self, step: int, logs: Any = None) -> None:
                seen.append(self.begun + step)

        layer, data = Regression(), Rows()
        model = paddle.Model(layer)
        model.prepare(paddle.optimizer.SGD(0.1, parameters=layer.parameters()), paddle.nn.MSELoss())
        model.fit(data, data if validate else None, batch_size=SAMPLES, epochs=epochs,
                  callbacks=[*callbacks, Watch()], **{"verbose": 0, **options})  # fmt: skip
        return seen

    def logs(self, on_batch: OnBatch, on_read: Callable[[], None]) -> Logs:
        logged: Logs = {}

        class Later(self.native.module.callbacks.Callback):  # type: ignore[misc, name-defined]
            step = 0

            def on_train_batch_end(self, step: int, logs: Any = None) -> None:
                self.step += 1
                found = {name: value for name, value in logs.items() if name.startswith("perfkit/")}
                if self.step % 3 == 0:  # the logs keep their values until the next update
                    logged[self.step] = found
                assert bool(found) == (self.step >= 3)

        self.fit(self.throughput(every=3), Later(), validate=True, on_batch=on_batch, verbose=2, log_freq=1)
        return logged
