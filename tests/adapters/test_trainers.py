"""The callbacks of training frameworks: the right steps are recorded, the training is not disturbed, and the throughput
is in the framework's own logs."""

from __future__ import annotations

import gc
import importlib
import itertools
import json
import sys
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from perfkit_core.errors import UsageError
from perfkit_core.readers.load import load
from perfkit_core.trace.model.trace import Trace
from perfkit_core.trace.storage import store
from perfkit_core.trace.storage.store import INCOMPLETE_MARK
from tests.support.demanded_loop import captured
from tests.support.fake_clock import Clock
from tests.support.frameworks import Framework
from tests.support.trainers import BATCHES, Hapi, Lightning, PytorchLightning, Transformers

TRAINERS = {"lightning": Lightning, "transformers": Transformers, "hapi": Hapi}
WITH_OLDER_PACKAGE = pytest.mark.parametrize(
    "trainer", [*TRAINERS.values(), PytorchLightning], ids=[*TRAINERS, "pytorch_lightning"], indirect=True
)
ONLY_LIGHTNING = pytest.mark.parametrize("trainer", [Lightning], ids=["lightning"], indirect=True)
ONLY_TRANSFORMERS = pytest.mark.parametrize("trainer", [Transformers], ids=["transformers"], indirect=True)


@pytest.fixture(params=TRAINERS.values(), ids=TRAINERS)
def trainer(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # training frameworks warn about workers, and about modules of torch
        yield request.param(tmp_path)


def steps_of(trace: Trace) -> list[int]:
    return sorted(trace.ints("step")[trace.rows("kind", "step")].tolist())


def cycles(folder: Path) -> list[list[int]]:
    """Return the steps of each recorded cycle."""
    store.flush(folder)
    return [steps_of(load(path)) for path in sorted(folder.glob("*.parquet"))]


def within_steps(trace: Trace, name: str) -> list[int]:
    """Return the step of each event with this name in the order of the events, -1 if an event is outside every step."""
    found: list[int] = trace.ints("step")[trace.rows("name", name)].tolist()
    return found


def exported_steps(file: Path) -> set[int]:
    """Return the step numbers that the framework has exported for the same cycle."""
    names = (event.get("name", "") for event in json.loads(file.read_text())["traceEvents"])
    return {
        int(name.split("[")[0].split("#")[1]) for name in names if name.startswith(("ProfilerStep#", "ProfileStep#"))
    }


@WITH_OLDER_PACKAGE
def test_the_chosen_steps(trainer: Any, tmp_path: Path) -> None:
    """Steps are numbered over all epochs, each step has one update, and the framework's export has the same steps."""
    export, run = tmp_path / "own.json", tmp_path / "run"

    def also(profiler: Any) -> None:
        profiler.export(str(export), "json") if trainer.framework == "paddle" else profiler.export_chrome_trace(
            str(export)
        )

    assert trainer.fit(trainer.callback(run, steps=(3, 8), record_shapes=True, also=[also])) == list(range(12))
    chosen = [3, 4, 5, 6, 7, 8]
    assert cycles(run) == [chosen]
    assert exported_steps(export) == set(chosen)
    trace = load(run)
    assert within_steps(trace, "training") == chosen
    assert {"forward", "backward", "optimizer", "dataloader"} <= set(trace.codes("phase").values)
    assert "partial-step" not in {finding.code for finding in trace.quality}
    assert trace.meta.options["record_shapes"]


@ONLY_LIGHTNING
def test_phases_of_a_closure(trainer: Any, tmp_path: Path) -> None:
    """Lightning runs the forward pass in the closure of the optimizer."""
    trainer.fit(trainer.callback(tmp_path / "run", steps=(3, 8), record_shapes=True))
    events = load(tmp_path / "run").to_pandas()
    linear = events[events["name"] == "aten::linear"]
    assert [json.loads(shapes) for shapes in linear["shapes"]] == [[[2, 4], [1, 4], [1]]] * 6
    phase = events.groupby("name", observed=True)["phase"].unique().map(set)
    assert phase["aten::linear"] == {"forward"}
    assert phase["MeanBackward0"] == {"backward"}
    assert phase["aten::add_"] == {"optimizer"}
    assert phase["enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"] == {"dataloader"}


def test_cycles_follow_the_skipped_step(trainer: Any, tmp_path: Path) -> None:
    """Each cycle has one step of waiting, one warm-up step and two recorded steps."""
    trainer.fit(trainer.callback(tmp_path / "run", skip_first=1, wait=1, warmup=1, active=2, repeat=2))
    assert cycles(tmp_path / "run") == [[3, 4], [7, 8]]


@pytest.mark.parametrize(
    ("trainer", "steps", "options", "expected"),
    [
        (Lightning, (2, 9), {"validate": True}, [[2, 3, 4, 5], [6, 7, 8, 9]]),
        (Lightning, (1, 7), {"validate": True, "val_check_interval": 3}, [[1, 2], [3, 4, 5], [6, 7]]),
        (Transformers, (2, 9), {"validate": True}, [[2, 3, 4, 5], [6, 7, 8, 9]]),
        (Transformers, (2, 9), {"eval_strategy": "steps", "eval_steps": 4}, [[2, 3], [4, 5, 6, 7], [8, 9]]),
        (Transformers, (2, 9), {"eval_on_start": True}, [[2, 3, 4, 5, 6, 7, 8, 9]]),
        (Hapi, (2, 9), {"validate": True}, [[2, 3, 4, 5], [6, 7, 8, 9]]),
        (Hapi, (6, 7), {"validate": True}, [[6, 7]]),
    ],
    indirect=["trainer"],
)
def test_evaluation_is_left_out(
    trainer: Any, steps: tuple[int, int], options: dict[str, Any], expected: list[list[int]], tmp_path: Path
) -> None:
    """The cycle ends before an evaluation, and the next cycle begins after it. In the last case, an evaluation follows
    the warm-up."""
    trainer.fit(trainer.callback(tmp_path / "run", steps=steps), **options)
    assert cycles(tmp_path / "run") == expected
    trace = load(tmp_path / "run")
    assert within_steps(trace, "validating") == []
    assert within_steps(trace, "training") == list(itertools.chain(*expected))
    assert "partial-step" not in {finding.code for finding in trace.quality}


def test_the_training_ends_within_the_window(trainer: Any, tmp_path: Path) -> None:
    """Complete steps are kept. The step that was opened but did not take place is not a step."""
    trainer.fit(trainer.callback(tmp_path / "run", steps=(1, 100)), epochs=1)
    trace = load(tmp_path / "run")
    assert steps_of(trace) == [1, 2, 3, 4, 5]
    assert "partial-step" not in {finding.code for finding in trace.quality}


@pytest.mark.parametrize("trainer", [Lightning, Transformers], ids=["lightning", "transformers"], indirect=True)
def test_a_resumed_training_keeps_its_numbers(trainer: Any, tmp_path: Path) -> None:
    """The second training continues at step 6. ``wait`` counts from this step, and ``steps`` are absolute numbers."""
    saving = {"save_strategy": "steps", "save_steps": 6} if isinstance(trainer, Transformers) else {}
    first = saving or {"enable_checkpointing": True}
    trainer.fit(trainer.callback(tmp_path / "first"), epochs=2 if saving else 1, **first)
    checkpoints = [*tmp_path.rglob("*.ckpt"), *tmp_path.rglob("checkpoint-6")]
    for name, window, expected in (
        ("second", {"wait": 0, "warmup": 1, "active": 2, "repeat": 2}, [[7, 8], [10, 11]]),
        ("third", {"steps": (6, 7)}, [[6, 7]]),
    ):
        callback = trainer.callback(tmp_path / name, **window)
        assert trainer.fit(callback, resume=checkpoints[0], **saving) == [6, 7, 8, 9, 10, 11]
        assert cycles(tmp_path / name) == expected


@WITH_OLDER_PACKAGE
def test_an_exception_keeps_the_recording(trainer: Any, tmp_path: Path) -> None:
    """The exception of the user is raised. The interrupted step is not a step. If the framework does not tell callbacks
    about exceptions, ``close()``, the next training or the end of the process writes the file."""
    run, batches = tmp_path / "run", itertools.count()

    def crash(label: str) -> None:
        if next(batches) == 4:
            raise ZeroDivisionError

    callback = trainer.callback(run, steps=(1, 9))
    with pytest.raises(ZeroDivisionError):
        trainer.fit(callback, on_batch=crash)
    if not trainer.writes_at_exceptions:
        assert cycles(run) == []
        callback.close()
        callback.close()
    trace = load(run)
    assert steps_of(trace) == [1, 2, 3]
    assert "partial-step" in {finding.code for finding in trace.quality}
    trainer.fit(callback)
    trace = load(run)
    assert steps_of(trace) == list(range(1, 10))
    assert "older-recordings" in {finding.code for finding in trace.quality}


def test_a_failing_profiler_does_not_stop_the_training(
    trainer: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Another profiler is running. The training continues, the reason is logged, the run is marked as incomplete, and
    the other profiler keeps its data."""
    own = trainer.native.profiler(on_trace_ready=trainer.native.trace_handler(tmp_path / "own"))
    own.start()
    assert trainer.fit(trainer.callback(tmp_path / "run", steps=(1, 2)), epochs=1) == [0, 1, 2, 3, 4, 5]
    own.stop()
    del own
    gc.collect()
    store.flush(tmp_path / "own")
    assert f"training continues: {trainer.other_profiler}" in caplog.text
    assert (tmp_path / "run" / INCOMPLETE_MARK).exists()
    assert load(tmp_path / "own").rows("name", "training").sum() == BATCHES


def test_a_window_that_is_never_reached_is_reported(
    trainer: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    trainer.fit(trainer.callback(tmp_path / "run", steps=(100, 110)), epochs=1)
    assert "recorded: the loop ran steps 0 to 5, and should record steps 100 to 110" in caplog.text
    assert not (tmp_path / "run").exists()


@ONLY_TRANSFORMERS
def test_a_step_holds_all_accumulated_batches(trainer: Any, tmp_path: Path) -> None:
    callback = trainer.callback(tmp_path / "run", steps=(1, 2))
    assert trainer.fit(callback, epochs=1, gradient_accumulation_steps=2) == [0, 1, 2]
    trace = load(tmp_path / "run")
    assert within_steps(trace, "training") == [1, 1, 2, 2]
    assert within_steps(trace, "Optimizer.step#AdamW.step") == [1, 2]


@ONLY_LIGHTNING
@pytest.mark.usefixtures("sockets")
def test_steps_on_demand(trainer: Any, tmp_path: Path) -> None:
    """Two steps are asked for in the fourth batch. The training ends when they are recorded."""
    progress, requests = itertools.count(), list[Any]()

    class Stop(trainer.lightning.Callback):  # type: ignore[misc, name-defined]
        def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
            if next(progress) == 3:
                requests.append(ThreadPoolExecutor(1).submit(captured, str(tmp_path / "run"), 2))
            trainer.should_stop = any(request.done() for request in requests)

    trainer.fit(trainer.callback(tmp_path / "run", on_demand=True), Stop(), epochs=-1)
    accepted, _ = requests[0].result()
    assert cycles(tmp_path / "run") == [[accepted.first, accepted.last]]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"steps": (4, 2)}, "selects no steps"),
        ({"steps": (1, 2), "wait": 3}, "cannot be combined"),
        ({"active": 0}, "active=0 is no valid number"),
        ({"profile_memry": True}, r"no option profile_memry; did you mean profile_memory\? its options are: "),
        ({"on_trace_ready": print}, "also="),
        ({"timer_only": True}, "records no events|no option timer_only"),
    ],
)
def test_wrong_arguments_are_refused_at_once(
    native: Framework, options: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match=message):
        native.CallbackRecording(tmp_path, **options)
    schedule = {"torch": "schedule", "paddle": "scheduler"}[native.name]
    with pytest.raises(UsageError, match="perfkit makes it from the steps that you choose"):
        native.CallbackRecording(tmp_path, **{schedule: print})


def test_the_throughput_is_in_its_logs(
    trainer: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A step computes for 100 ns of the clock, and a validated batch takes 10,000 ns. A batch has two samples."""
    module = importlib.import_module(f"perfkit_{trainer.framework}.throughput")
    measured = module.LoaderThroughput if trainer.framework == "torch" else module.Throughput
    clock, original = Clock(), measured.__init__
    monkeypatch.setattr(measured, "__init__", lambda throughput, warmup: original(throughput, warmup, clock=clock))
    logs = trainer.logs(
        lambda label: clock.advance(100 if label == "training" else 10_000), lambda: clock.advance(trainer.reading_ns)
    )
    reading = 2 * trainer.reading_ns
    expected = {
        "perfkit/reader_cost_ms": pytest.approx(reading / 1e6),
        "perfkit/batch_cost_ms": pytest.approx((100 + reading) / 1e6),
        "perfkit/samples_per_s": pytest.approx(2e9 / (100 + reading)),
    }
    assert logs == dict.fromkeys((3, 6, 9, 12), expected)
    if isinstance(trainer, Hapi):
        assert "perfkit/samples_per_s: 20000000.0000" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("module", "hidden", "hint"),
    [
        ("lightning", ["lightning", "lightning.pytorch", "pytorch_lightning"], "pip install lightning"),
        ("transformers", ["transformers"], "pip install transformers accelerate"),
    ],
)
def test_a_missing_training_framework_is_one_clear_line(
    module: str, hidden: list[str], hint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch", reason="needs torch: pip install 'perfkit[torch]'")
    for name in hidden:
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.delitem(sys.modules, f"perfkit_torch.integrations.{module}", raising=False)
    with pytest.raises(ImportError, match=f"^[^\n]*{hint}$"):
        importlib.import_module(f"perfkit_torch.integrations.{module}")
