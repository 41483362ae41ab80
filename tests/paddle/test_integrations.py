"""The callback for paddle.Model.fit: the right steps are recorded, and the training is not disturbed."""

from __future__ import annotations

import gc
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from perfkit_core.errors import UsageError
from perfkit_core.readers.load import load
from perfkit_core.trace.model.trace import Trace
from perfkit_core.trace.storage import store
from perfkit_core.trace.storage.unwritten import INCOMPLETE_MARK
from tests.support.fake_clock import Clock

pytestmark = pytest.mark.filterwarnings("ignore:To copy construct from a tensor")  # from paddle.Model

Fit = Callable[..., list[int]]
"""A function that trains and returns the number that Paddle gave to each batch within its epoch."""

BATCHES = 4


def steps_of(trace: Trace) -> list[int]:
    return sorted(trace.ints("step")[trace.rows("kind", "step")].tolist())


def files(folder: Path) -> list[Path]:
    store.flush(folder)
    return sorted(folder.glob("*.parquet"))


def within_steps(trace: Trace, name: str) -> list[int]:
    return trace.ints("step")[trace.rows("name", name)].tolist()


def perfkit_callback(*args: Any, **kwargs: Any) -> Any:
    from perfkit_paddle.integrations.hapi import PerfkitCallback

    return PerfkitCallback(*args, **kwargs)


@pytest.fixture
def fit(paddle: Any) -> Fit:
    class Regression(paddle.nn.Layer):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.net = paddle.nn.Linear(4, 1)

        def forward(self, x: Any) -> Any:
            with paddle.profiler.RecordEvent("training" if self.training else "validating"):
                return self.net(x)

    class Rows(paddle.io.Dataset):  # type: ignore[misc, name-defined]
        def __getitem__(self, index: int) -> Any:
            return np.full(4, index, np.float32), np.ones(1, np.float32)

        def __len__(self) -> int:
            return BATCHES * 2

    class Watch(paddle.callbacks.Callback):  # type: ignore[misc, name-defined]
        def __init__(self, crash_at: int | None) -> None:
            super().__init__()
            self.crash_at, self.seen = crash_at, []

        def on_train_batch_begin(self, step: int, logs: Any = None) -> None:
            if self.crash_at == len(self.seen):
                raise ZeroDivisionError
            self.seen.append(step)

    def train(callback: Any, crash_at: int | None = None, validate: bool = False, **options: Any) -> list[int]:
        layer = Regression()
        model = paddle.Model(layer)
        optimizer = paddle.optimizer.SGD(0.1, parameters=layer.parameters())
        model.prepare(optimizer, paddle.nn.MSELoss())
        data = Rows()
        watch = Watch(crash_at)
        model.fit(data, data if validate else None, batch_size=2, verbose=0, callbacks=[callback, watch], **options)
        return watch.seen

    return train


def test_the_callback_of_fit_records_the_chosen_steps(paddle: Any, fit: Fit, tmp_path: Path) -> None:
    """Steps are numbered from 0 over all epochs without a gap, each step has one forward pass, and Paddle's export has
    the same steps."""
    export = tmp_path / "own.json"
    callback = perfkit_callback(tmp_path / "run", steps=(3, 9), also=[lambda p: p.export(str(export), "json")])
    assert fit(callback, epochs=3) == [0, 1, 2, 3] * 3
    trace = load(tmp_path / "run")
    assert steps_of(trace) == [3, 4, 5, 6, 7, 8, 9]
    assert within_steps(trace, "training") == [3, 4, 5, 6, 7, 8, 9]
    native = [event.get("name", "") for event in json.loads(export.read_text())["traceEvents"]]
    assert sorted(name.split("[")[0].split("#")[1] for name in native if name.startswith("ProfileStep#")) == list(
        "3456789"
    )
    assert len(files(tmp_path / "run")) == 1
    assert {"backward", "optimizer", "dataloader"} <= set(trace.codes("phase").values)
    assert "partial-step" not in {finding.code for finding in trace.quality}


def test_cycles_follow_the_skipped_step(fit: Fit, tmp_path: Path) -> None:
    """After one skipped step, three cycles follow. Each cycle has one step of waiting, one warm-up step and two
    recorded steps."""
    callback = perfkit_callback(tmp_path, skip_first=1, wait=1, warmup=1, active=2, repeat=3)
    fit(callback, epochs=4)
    assert [steps_of(load(path)) for path in files(tmp_path)] == [[3, 4], [7, 8], [11, 12]]


def test_evaluation_is_left_out(fit: Fit, tmp_path: Path) -> None:
    """Paddle evaluates after each epoch. The cycle ends before the evaluation, and the next cycle begins after it."""
    fit(perfkit_callback(tmp_path, steps=(2, 9)), epochs=3, validate=True)
    assert [steps_of(load(path)) for path in files(tmp_path)] == [[2, 3], [4, 5, 6, 7], [8, 9]]
    trace = load(tmp_path)
    assert within_steps(trace, "validating") == []
    assert within_steps(trace, "training") == [2, 3, 4, 5, 6, 7, 8, 9]


def test_an_evaluation_during_the_warm_up(fit: Fit, tmp_path: Path) -> None:
    fit(perfkit_callback(tmp_path, steps=(4, 5)), epochs=2, validate=True)
    assert [steps_of(load(path)) for path in files(tmp_path)] == [[4, 5]]


def test_the_training_ends_within_the_window(fit: Fit, tmp_path: Path) -> None:
    """Complete steps are kept. The step that was opened but did not take place is not a step."""
    fit(perfkit_callback(tmp_path, steps=(1, 100)), epochs=1)
    trace = load(tmp_path)
    assert steps_of(trace) == [1, 2, 3]
    assert "partial-step" not in {finding.code for finding in trace.quality}


def test_an_exception_is_kept_at_close(paddle: Any, fit: Fit, tmp_path: Path) -> None:
    callback = perfkit_callback(tmp_path, steps=(1, 7))
    with pytest.raises(ZeroDivisionError):
        fit(callback, crash_at=3, epochs=2)
    callback.close()
    callback.close()
    broken_off = load(tmp_path)
    assert steps_of(broken_off) == [1, 2]
    assert "partial-step" in {finding.code for finding in broken_off.quality}
    fit(callback, epochs=2)
    assert steps_of(load(tmp_path)) == [1, 2, 3, 4, 5, 6, 7]


def test_a_failing_profiler_does_not_stop_the_training(
    paddle: Any, fit: Fit, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Another profiler is running, and Paddle allows only one. The training continues, the reason is logged, and the
    other profiler keeps its data."""
    own = paddle.profiler.Profiler(on_trace_ready=lambda prof: None)
    own.start()
    assert fit(perfkit_callback(tmp_path, steps=(1, 2)), epochs=1) == [0, 1, 2, 3]
    own.stop()
    assert "training continues: another Profiler exists in this process" in caplog.text
    assert (tmp_path / INCOMPLETE_MARK).exists()
    assert own.profiler_result is not None
    del own
    gc.collect()


def test_a_window_that_is_never_reached_is_reported(fit: Fit, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    fit(perfkit_callback(tmp_path / "run", steps=(100, 110)), epochs=1)
    assert "recorded: the loop ran steps 0 to 3, and should record steps 100 to 110" in caplog.text
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"steps": (4, 2)}, "selects no steps"),
        ({"steps": (1, 2), "wait": 3}, "cannot be combined"),
        ({"profile_memry": True}, r"no option profile_memry; did you mean profile_memory\? its options are: "),
        ({"scheduler": print}, "perfkit makes it from the steps that you choose"),
        ({"timer_only": True}, "records no events"),
    ],
)
def test_wrong_arguments_are_refused_at_once(
    paddle: Any, options: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match=message):
        perfkit_callback(tmp_path, **options)


def test_the_throughput_is_in_the_logs_of_fit(
    paddle: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each training step takes 100 ns of the clock, and each evaluated batch 10,000 ns. A batch has two samples."""
    from perfkit_paddle.integrations.hapi import ThroughputCallback
    from perfkit_paddle.throughput import Throughput

    clock, original = Clock(), Throughput.__init__
    monkeypatch.setattr(Throughput, "__init__", lambda throughput, warmup: original(throughput, warmup, clock=clock))
    callback = ThroughputCallback(every=2)
    seen: list[dict[str, float]] = []

    class Later(paddle.callbacks.Callback):  # type: ignore[misc, name-defined]
        def on_train_batch_begin(self, step: int, logs: Any = None) -> None:
            clock.advance(100)

        def on_eval_batch_begin(self, step: int, logs: Any = None) -> None:
            clock.advance(10_000)

        def on_train_batch_end(self, step: int, logs: Any = None) -> None:
            seen.append({name: value for name, value in logs.items() if name.startswith("perfkit/")})

    layer = paddle.nn.Linear(4, 1)
    model = paddle.Model(layer)
    model.prepare(paddle.optimizer.SGD(0.1, parameters=layer.parameters()), paddle.nn.MSELoss())

    class Rows(paddle.io.Dataset):  # type: ignore[misc, name-defined]
        def __getitem__(self, index: int) -> Any:
            return np.ones(4, "float32"), np.ones(1, "float32")

        def __len__(self) -> int:
            return 8

    data = Rows()
    model.evaluate(data, batch_size=2, verbose=0, callbacks=[callback])
    model.fit(data, data, batch_size=2, epochs=2, verbose=2, log_freq=1, callbacks=[callback, Later()])
    expected = {
        "perfkit/batch_cost_ms": pytest.approx(100e-6), "perfkit/reader_cost_ms": 0,
        "perfkit/samples_per_s": pytest.approx(2e9 / 100),
    }  # fmt: skip
    assert seen[0] == {}
    assert seen[1:] == [expected] * 7
    assert "perfkit/samples_per_s: 20000000.0000" in capsys.readouterr().out
