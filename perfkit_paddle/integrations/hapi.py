"""Callbacks for ``paddle.Model.fit``: one records a range of training steps, and one logs the throughput.

model.fit(data, callbacks=[PerfkitCallback("runs/baseline", steps=(10, 19))])"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from perfkit_core.recording.throughput.trainer_metrics import TrainerMetrics
from perfkit_paddle import framework, record
from perfkit_paddle.throughput import Throughput

if TYPE_CHECKING:
    from paddle.callbacks import Callback as _Callback
else:
    _Callback = framework.paddle().callbacks.Callback


class PerfkitCallback(_Callback):  # type: ignore[misc]
    """Callback that records the selected steps into a run folder. The arguments are those of
    :class:`perfkit_paddle.record.PaddleRecording`.

    A step is a training batch. Steps are numbered from 0 over all epochs of one call of ``fit``. Evaluation is not
    recorded.

    ``fit`` does not tell its callbacks about exceptions. An interrupted recording is therefore written at the next
    ``fit``, at :meth:`close`, or when the process ends."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()
        self._recording = record.PaddleRecording(*args, **kwargs)

    def close(self) -> None:
        """If a call of ``fit`` ended with an exception, write its recording."""
        self._recording.abort()

    def on_train_begin(self, logs: Any = None) -> None:
        self._recording.begin(0)

    def on_train_batch_end(self, step: int, logs: Any = None) -> None:
        self._recording.step_ended()

    def on_eval_begin(self, logs: Any = None) -> None:
        self._recording.pause()

    def on_eval_end(self, logs: Any = None) -> None:
        self._recording.resume()

    def on_train_end(self, logs: Any = None) -> None:
        self._recording.finish()


class ThroughputCallback(_Callback):  # type: ignore[misc]
    """Callback that adds the throughput (docs/throughput.md) of this process to the ``logs`` of ``fit``, every
    ``every`` steps. The progress bar shows it, and later callbacks such as VisualDL store it."""

    def __init__(self, every: int = 10) -> None:
        super().__init__()
        self._every = every
        self._metrics = TrainerMetrics(Throughput)

    def on_train_begin(self, logs: Any = None) -> None:
        self._metrics.begin()

    def on_train_batch_end(self, step: int, logs: Any = None) -> None:
        logs = {} if logs is None else logs
        ranks = framework.paddle().distributed.ParallelEnv().nranks
        self._metrics.step(lambda: logs["batch_size"] // ranks)

        def log(metrics: dict[str, float]) -> None:
            shown = self.params.get("metrics", [])
            shown += [name for name in metrics if name not in shown]
            logs.update(metrics)

        self._metrics.log(log, every=self._every)

    def on_eval_begin(self, logs: Any = None) -> None:
        self._metrics.pause()

    def on_eval_end(self, logs: Any = None) -> None:
        self._metrics.resume()

    def on_train_end(self, logs: Any = None) -> None:
        self._metrics.end()
