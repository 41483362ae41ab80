"""Callbacks for Lightning and for the Hugging Face Trainer: the right steps are recorded, and the training is not
disturbed."""

from __future__ import annotations

import importlib
import itertools
import json
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs torch: pip install 'perfkit[torch]'")

from perfkit_core.errors import UsageError  # noqa: E402
from perfkit_core.readers.load import load  # noqa: E402
from perfkit_core.trace.model.trace import Trace  # noqa: E402
from perfkit_core.trace.storage import store  # noqa: E402
from perfkit_core.trace.storage.unwritten import INCOMPLETE_MARK  # noqa: E402
from tests.support.demanded_loop import captured  # noqa: E402

Fit = Callable[..., list[int]]
"""A function that trains and returns the step numbers that the training framework counted."""

BATCHES = 6


def steps_of(trace: Trace) -> list[int]:
    return trace.ints("step")[trace.rows("kind", "step")].tolist()


def files(folder: Path) -> list[Path]:
    store.flush(folder)
    return sorted(folder.glob("*.parquet"))


def within_steps(trace: Trace, name: str) -> list[int]:
    """Return the step of each event with this name in the order of the events, -1 if an event is outside every step."""
    return trace.ints("step")[trace.rows("name", name)].tolist()


@pytest.fixture
def lightning(request: pytest.FixtureRequest) -> Any:
    """Return the package of Lightning with the name of the parameter, or the newer one."""
    name = getattr(request, "param", "lightning.pytorch")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pytest.importorskip(name, reason=f"needs {name}")


BOTH_PACKAGES = pytest.mark.parametrize("lightning", ["lightning.pytorch", "pytorch_lightning"], indirect=True)


@pytest.fixture
def lightning_fit(lightning: Any, tmp_path: Path) -> Iterator[Fit]:
    """Train a small regression with Lightning. The training step with the number ``crash_at`` raises an error."""

    class Regression(lightning.LightningModule):  # type: ignore[misc, name-defined]
        def __init__(self, crash_at: int | None) -> None:
            super().__init__()
            self.net, self.crash_at, self.seen = torch.nn.Linear(4, 1), crash_at, []

        def training_step(self, batch: Any, batch_idx: int) -> Any:
            self.seen.append(self.trainer.global_step)
            if self.crash_at == self.trainer.global_step:
                raise ZeroDivisionError
            return self.net(batch).square().mean()

        def validation_step(self, batch: Any, batch_idx: int) -> None:
            with torch.profiler.record_function("validating"):
                self.net(batch)

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=0.1)

    def fit(*callbacks: Any, crash_at: int | None = None, resume: Path | None = None, **options: Any) -> list[int]:
        data = torch.utils.data.DataLoader(torch.randn(BATCHES * 2, 4), batch_size=2)
        trainer = lightning.Trainer(
            accelerator="cpu", callbacks=[*callbacks], default_root_dir=tmp_path, logger=False,
            enable_progress_bar=False, enable_model_summary=False, **{"enable_checkpointing": False, **options},
        )  # fmt: skip
        module = Regression(crash_at)
        trainer.fit(module, data, data, ckpt_path=resume)
        return module.seen

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Lightning warns about the number of workers and about modules of torch
        yield fit


@pytest.fixture
def huggingface_fit(tmp_path: Path) -> Iterator[Fit]:
    """Train the same regression with Hugging Face's Trainer."""
    transformers = pytest.importorskip("transformers", reason="needs transformers")
    pytest.importorskip("accelerate", reason="needs accelerate")

    class Regression(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.net = torch.nn.Linear(4, 1)

        def forward(self, x: Any, labels: Any = None) -> dict[str, Any]:
            if self.training:
                return {"loss": (self.net(x)[:, 0] - labels).square().mean()}
            with torch.profiler.record_function("validating"):
                return {"loss": self.net(x).mean(), "logits": self.net(x)}

    class Watch(transformers.TrainerCallback):  # type: ignore[misc, name-defined]
        def __init__(self, crash_at: int | None) -> None:
            self.crash_at, self.seen = crash_at, []

        def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            self.seen.append(state.global_step)
            if self.crash_at == state.global_step:
                raise ZeroDivisionError

    def fit(callback: Any, crash_at: int | None = None, resume: Path | None = None, **options: Any) -> list[int]:
        watch = Watch(crash_at)
        row = {"x": [1.0, 2.0, 3.0, 4.0], "labels": 1.0}
        arguments = transformers.TrainingArguments(
            output_dir=str(tmp_path / "trainer"), per_device_train_batch_size=2, report_to=[], disable_tqdm=True,
            use_cpu=True, **{"save_strategy": "no", **options},
        )  # fmt: skip
        data = [row] * (BATCHES * 2)
        trainer = transformers.Trainer(
            Regression(), arguments, train_dataset=data, eval_dataset=data, callbacks=[callback, watch]
        )
        trainer.train(resume_from_checkpoint=str(resume) if resume else None)
        return watch.seen

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield fit


def lightning_callback(*args: Any, **kwargs: Any) -> Any:
    return importlib.import_module("perfkit_torch.integrations.lightning").PerfkitCallback(*args, **kwargs)


def huggingface_callback(*args: Any, **kwargs: Any) -> Any:
    return importlib.import_module("perfkit_torch.integrations.transformers").PerfkitCallback(*args, **kwargs)


def exported_steps(path: Path) -> list[str]:
    """Return the step numbers that torch has exported for the same cycle."""
    return sorted(e["name"] for e in json.loads(path.read_text())["traceEvents"] if "ProfilerStep" in e.get("name", ""))


@BOTH_PACKAGES
def test_lightning_records_the_chosen_steps(lightning_fit: Fit, tmp_path: Path) -> None:
    """Steps are numbered over all epochs as in the trainer, each step has one update, and torch's export has the same
    steps."""
    export = tmp_path / "own.json"
    callback = lightning_callback(
        tmp_path / "run", steps=(3, 8), record_shapes=True, also=[lambda prof: prof.export_chrome_trace(str(export))]
    )
    assert lightning_fit(callback, max_epochs=2, limit_val_batches=0) == list(range(12))
    trace = load(tmp_path / "run")
    assert steps_of(trace) == [3, 4, 5, 6, 7, 8]
    assert exported_steps(export) == [f"ProfilerStep#{step}" for step in range(3, 9)]
    assert within_steps(trace, "Optimizer.step#SGD.step") == [3, 4, 5, 6, 7, 8]
    linear = trace.to_pandas().query("name == 'aten::linear'")
    assert [json.loads(shapes) for shapes in linear["shapes"]] == [[[2, 4], [1, 4], [1]]] * 6
    assert len(files(tmp_path / "run")) == 1
    phase = trace.to_pandas().groupby("name", observed=True)["phase"].unique().map(set)
    assert phase["aten::linear"] == {"forward"}  # although it runs in the closure of the optimizer
    assert phase["MeanBackward0"] == {"backward"}
    assert phase["aten::add_"] == {"optimizer"}
    assert phase["enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"] == {"dataloader"}


def test_lightning_leaves_validation_out(lightning_fit: Fit, tmp_path: Path) -> None:
    """Lightning validates after every third batch. The cycle ends before the validation, and the next cycle begins
    after it."""
    callback = lightning_callback(tmp_path / "run", steps=(1, 7))
    lightning_fit(callback, max_epochs=2, val_check_interval=3)
    assert [steps_of(load(path)) for path in files(tmp_path / "run")] == [[1, 2], [3, 4, 5], [6, 7]]
    trace = load(tmp_path / "run")
    assert within_steps(trace, "validating") == []
    assert within_steps(trace, "Optimizer.step#SGD.step") == [1, 2, 3, 4, 5, 6, 7]
    assert "partial-step" not in {finding.code for finding in trace.quality}


def test_lightning_keeps_the_numbers_of_a_resumed_training(lightning_fit: Fit, tmp_path: Path) -> None:
    """The second training continues at step 6. ``wait`` counts from this step, and ``steps`` are absolute numbers."""

    lightning_fit(lightning_callback(tmp_path / "first"), max_epochs=1, enable_checkpointing=True)
    (checkpoint,) = tmp_path.rglob("*.ckpt")
    callback = lightning_callback(tmp_path / "second", wait=1, warmup=1, active=2)
    assert lightning_fit(callback, max_epochs=2, resume=checkpoint) == [6, 7, 8, 9, 10, 11]
    assert steps_of(load(tmp_path / "second")) == [8, 9]
    callback = lightning_callback(tmp_path / "third", steps=(6, 7))
    lightning_fit(callback, max_epochs=2, resume=checkpoint)
    assert steps_of(load(tmp_path / "third")) == [6, 7]


@pytest.mark.usefixtures("sockets")
def test_lightning_records_on_demand(lightning: Any, lightning_fit: Fit, tmp_path: Path) -> None:
    """Two steps are asked for in the fourth batch. The training ends when they are recorded."""
    progress, requests = itertools.count(), list[Any]()

    class Stop(lightning.Callback):  # type: ignore[misc, name-defined]
        def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
            if next(progress) == 3:
                requests.append(ThreadPoolExecutor(1).submit(captured, str(tmp_path / "run"), 2))
            trainer.should_stop = any(request.done() for request in requests)

    callback = lightning_callback(tmp_path / "run", on_demand=True)
    lightning_fit(callback, Stop(), max_epochs=-1, limit_val_batches=0)
    accepted, _ = requests[0].result()
    assert steps_of(load(tmp_path / "run")) == [accepted.first, accepted.last]


@BOTH_PACKAGES
def test_lightning_exception_keeps_the_recording(lightning_fit: Fit, tmp_path: Path) -> None:
    """The exception of the user is raised. The interrupted step is not a step, and another profiler can run
    afterwards."""
    with pytest.raises(ZeroDivisionError):
        lightning_fit(lightning_callback(tmp_path / "run", steps=(1, 9)), crash_at=4, max_epochs=2)
    trace = load(tmp_path / "run")
    assert steps_of(trace) == [1, 2, 3]
    assert "partial-step" in {finding.code for finding in trace.quality}
    with torch.profiler.profile():
        pass


def test_huggingface_records_the_chosen_steps(huggingface_fit: Fit, tmp_path: Path) -> None:
    """A step is numbered by ``global_step`` at its start, over all epochs, and has one update."""
    export = tmp_path / "own.json"
    callback = huggingface_callback(
        tmp_path / "run", steps=(3, 8), also=[lambda prof: prof.export_chrome_trace(str(export))]
    )
    assert huggingface_fit(callback, num_train_epochs=2) == list(range(12))
    trace = load(tmp_path / "run")
    assert steps_of(trace) == [3, 4, 5, 6, 7, 8]
    assert exported_steps(export) == [f"ProfilerStep#{step}" for step in range(3, 9)]
    assert within_steps(trace, "Optimizer.step#AdamW.step") == [3, 4, 5, 6, 7, 8]
    assert {"forward", "backward", "optimizer", "dataloader"} <= set(trace.codes("phase").values)


def test_huggingface_step_holds_all_accumulated_batches(huggingface_fit: Fit, tmp_path: Path) -> None:
    callback = huggingface_callback(tmp_path / "run", steps=(1, 2))
    assert huggingface_fit(callback, num_train_epochs=1, gradient_accumulation_steps=2) == [0, 1, 2]
    trace = load(tmp_path / "run")
    assert within_steps(trace, "aten::mse_loss") == []
    assert within_steps(trace, "autograd::engine::evaluate_function: PowBackward0") == [1, 1, 2, 2]
    assert within_steps(trace, "Optimizer.step#AdamW.step") == [1, 2]


@pytest.mark.parametrize(
    ("options", "cycles"),
    [
        ({"eval_strategy": "steps", "eval_steps": 4}, [[2, 3], [4, 5, 6, 7], [8, 9]]),
        ({"eval_strategy": "epoch"}, [[2, 3, 4, 5], [6, 7, 8, 9]]),
        ({"eval_on_start": True}, [[2, 3, 4, 5, 6, 7, 8, 9]]),
    ],
)
def test_huggingface_leaves_evaluation_out(
    huggingface_fit: Fit, tmp_path: Path, options: dict[str, Any], cycles: list[list[int]]
) -> None:
    huggingface_fit(huggingface_callback(tmp_path / "run", steps=(2, 9)), num_train_epochs=2, **options)
    assert [steps_of(load(path)) for path in files(tmp_path / "run")] == cycles
    trace = load(tmp_path / "run")
    assert within_steps(trace, "validating") == []
    assert within_steps(trace, "Optimizer.step#AdamW.step") == [2, 3, 4, 5, 6, 7, 8, 9]


def test_huggingface_keeps_the_numbers_of_a_resumed_training(huggingface_fit: Fit, tmp_path: Path) -> None:
    options = {"num_train_epochs": 2, "save_strategy": "steps", "save_steps": 6}
    huggingface_fit(huggingface_callback(tmp_path / "first"), **options)
    callback = huggingface_callback(tmp_path / "second", wait=0, warmup=1, active=2, repeat=2)
    resumed = huggingface_fit(callback, resume=tmp_path / "trainer" / "checkpoint-6", **options)
    assert resumed == [6, 7, 8, 9, 10, 11]
    assert [steps_of(load(path)) for path in files(tmp_path / "second")] == [[7, 8], [10, 11]]


def test_huggingface_exception_is_kept_at_close(huggingface_fit: Fit, tmp_path: Path) -> None:
    """The Trainer does not tell callbacks about exceptions. ``close()``, the next training or the end of the process
    writes the file."""
    callback = huggingface_callback(tmp_path / "run", steps=(1, 9))
    with pytest.raises(ZeroDivisionError):
        huggingface_fit(callback, crash_at=4, num_train_epochs=2)
    assert files(tmp_path / "run") == []
    callback.close()
    callback.close()
    assert steps_of(load(tmp_path / "run")) == [1, 2, 3]
    huggingface_fit(callback, num_train_epochs=2)
    trace = load(tmp_path / "run")
    assert steps_of(trace) == list(range(1, 10))
    assert "older-recordings" in {finding.code for finding in trace.quality}


def test_a_failing_profiler_does_not_stop_the_training(
    lightning_fit: Fit, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Another profiler of torch is running. The training continues, the reason is logged, and the run is marked as
    incomplete."""
    with torch.profiler.profile() as own:
        seen = lightning_fit(lightning_callback(tmp_path / "run", steps=(1, 2)), max_epochs=1)
    assert seen == [0, 1, 2, 3, 4, 5]
    assert "training continues: another torch profiler is running" in caplog.text
    assert (tmp_path / "run" / INCOMPLETE_MARK).exists()
    assert sum(event.name == "Optimizer.step#SGD.step" for event in own.events()) == BATCHES


def test_a_window_that_is_never_reached_is_reported(
    lightning_fit: Fit, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    lightning_fit(lightning_callback(tmp_path / "run", steps=(100, 110)), max_epochs=1)
    assert "recorded: the loop ran steps 0 to 5, and should record steps 100 to 110" in caplog.text
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"steps": (4, 2)}, "selects no steps"),
        ({"steps": (1, 2), "active": 3}, "cannot be combined"),
        ({"active": 0}, "active=0 is no valid number"),
        ({"record_shape": True}, r"no option record_shape; did you mean record_shapes\? its options are: "),
        ({"on_trace_ready": print}, "also="),
        ({"schedule": print}, "perfkit makes it from the steps that you choose"),
    ],
)
def test_wrong_arguments_are_refused_at_once(options: dict[str, Any], message: str, tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    with pytest.raises(UsageError, match=message):
        huggingface_callback(tmp_path, **options)


@pytest.mark.parametrize(
    ("module", "hidden", "hint"),
    [
        ("lightning", ["lightning", "pytorch_lightning"], "pip install lightning"),
        ("transformers", ["transformers"], "pip install transformers accelerate"),
    ],
)
def test_a_missing_training_framework_is_one_clear_line(module: str, hidden: list[str], hint: str) -> None:
    script = f"import sys; sys.modules.update(dict.fromkeys({hidden})); import perfkit_torch.integrations.{module}"
    done = subprocess.run([sys.executable, "-c", script], stderr=subprocess.PIPE, text=True)
    assert done.stderr.splitlines()[-1].startswith("ImportError: ")
    assert done.stderr.splitlines()[-1].endswith(hint)
