"""The callbacks for PaddleNLP's Trainer. The tests need an environment with PaddleNLP (docs/integrations.md)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from perfkit_core.readers.load import load
from tests.support.fake_clock import Clock

pytest.importorskip("paddlenlp", reason="needs paddlenlp, which requires other versions of other packages")


@pytest.fixture
def trainer(paddle: Any, tmp_path: Path) -> Any:
    """Return a function that makes a Trainer with 6 updates. It evaluates after the third and the last of them."""
    from paddlenlp.trainer import Trainer, TrainingArguments

    class Regression(paddle.nn.Layer):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.net = paddle.nn.Linear(4, 1)

        def forward(self, x: Any, labels: Any = None) -> Any:
            with paddle.profiler.RecordEvent("training" if self.training else "validating"):
                output = self.net(x)
            return ((output[:, 0] - labels) ** 2).mean(), output

    class Rows(paddle.io.Dataset):  # type: ignore[misc, name-defined]
        def __getitem__(self, index: int) -> Any:
            return {"x": np.ones(4, "float32"), "labels": np.float32(1)}

        def __len__(self) -> int:
            return 24

    def make(*callbacks: Any) -> Any:
        arguments = TrainingArguments(
            output_dir=str(tmp_path / "trainer"), per_device_train_batch_size=4, max_steps=6, logging_steps=2,
            save_strategy="no", evaluation_strategy="steps", eval_steps=3, device="cpu", disable_tqdm=True,
            report_to=[],
        )  # fmt: skip
        return Trainer(
            model=Regression(), args=arguments, train_dataset=Rows(), eval_dataset=Rows(), callbacks=list(callbacks)
        )

    return make


def test_the_steps_are_those_of_the_trainer(trainer: Any, tmp_path: Path) -> None:
    from perfkit_paddle.integrations.paddlenlp import PerfkitCallback

    trainer(PerfkitCallback(tmp_path / "run", steps=(1, 4))).train()
    trace = load(tmp_path / "run")
    assert sorted(trace.ints("step")[trace.rows("kind", "step")].tolist()) == [1, 2, 3, 4]
    assert trace.ints("step")[trace.rows("name", "training")].tolist() == [1, 2, 3, 4]
    assert trace.ints("step")[trace.rows("name", "validating")].tolist() == []
    assert "partial-step" not in {finding.code for finding in trace.quality}


def test_the_throughput_is_in_its_log(trainer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each update takes 100 ns of the clock, and each evaluated batch 10,000 ns."""
    from paddlenlp.trainer import TrainerCallback

    from perfkit_paddle.integrations.paddlenlp import ThroughputCallback
    from perfkit_paddle.throughput import Throughput

    clock, original = Clock(), Throughput.__init__
    monkeypatch.setattr(Throughput, "__init__", lambda throughput, warmup: original(throughput, warmup, clock=clock))

    found: list[dict[str, float]] = []

    class Watch(TrainerCallback):  # type: ignore[misc]
        def on_step_begin(self, *_: Any, **__: Any) -> None:
            clock.advance(100)

        def on_prediction_step(self, *_: Any, **__: Any) -> None:
            clock.advance(10_000)

        def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
            if "perfkit/batch_cost_ms" in logs:
                found.append({"step": state.global_step, **logs})

    training = trainer(Watch())
    training.add_callback(ThroughputCallback(training, samples=4))
    training.train()
    assert [log["step"] for log in found] == [2, 4, 6]
    for log in found:
        assert log["perfkit/batch_cost_ms"] == pytest.approx(100e-6)
        assert log["perfkit/samples_per_s"] == pytest.approx(4e9 / 100)
