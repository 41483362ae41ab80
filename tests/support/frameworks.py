"""Both frameworks with one interface, for tests that both adapters must pass."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from perfkit_core.readers.load import load
from perfkit_core.trace.model.trace import Trace
from tests.support.paddle_executor import run_in_one_thread


class Framework:
    """What both frameworks do in the same way. ``product`` is the recorded name of a matrix product, ``states`` are the
    profiler's states: off, warm-up, recording, and recording the last step of a cycle."""

    name: str
    product: str
    options: tuple[str, ...]
    module: Any
    perfkit: Any
    trace_handler: Any

    def ones(self, *shape: int) -> Any:
        return self.module.ones(shape)

    def record(self, run_dir: Path, step: Callable[[], Any], steps: int = 2, **options: Any) -> Trace:
        """Record ``steps`` steps after two steps that are not recorded."""
        schedule = self.schedule(wait=1, warmup=1, active=steps, repeat=1)
        also = options.pop("also", ())
        with self.profiler(schedule, on_trace_ready=self.trace_handler(run_dir, also=also), **options) as profiler:
            for _ in range(steps + 2):
                step()
                profiler.step()
        del profiler
        return load(run_dir)

    def losses(self, steps: int, dropout: float = 0.0) -> Iterator[float]:
        """Train a small model with random inputs. Yield the loss of each step."""
        nn = self.module.nn
        self.seed(0)
        model = nn.Sequential(nn.Linear(8, 8), nn.Dropout(dropout), nn.Linear(8, 1))
        optimizer = self.optimizer("Adam", model)
        for _ in range(steps):
            loss = model(self.module.rand([4, 8])).square().mean()
            loss.backward()
            optimizer.step()
            self.clear_gradients(optimizer)
            yield loss.item()


class Torch(Framework):
    """torch. Its profilers have a schedule that records every step, if no other one is given."""

    name = "torch"
    product = "aten::mm"
    options = ("record_shapes", "profile_memory", "with_stack", "with_flops")

    def __init__(self) -> None:
        self.module = pytest.importorskip("torch", reason="needs torch: pip install 'perfkit[torch]'")
        import perfkit_torch
        from perfkit_torch import record

        self.perfkit, self.trace_handler, self.demo = perfkit_torch, perfkit_torch.trace_handler, record.DEMO
        self.record_script, self.CallbackRecording = record.record_script, record.TorchRecording
        self.on_host = {"activities": [self.module.profiler.ProfilerActivity.CPU]}
        action = self.module.profiler.ProfilerAction
        self.states = (action.NONE, action.WARMUP, action.RECORD, action.RECORD_AND_SAVE)

    def profiler(self, schedule: Any = None, **options: Any) -> Any:
        always = self.states[2]
        return self.module.profiler.profile(schedule=schedule or (lambda step: always), **self.on_host, **options)

    def schedule(self, **options: Any) -> Any:
        """Return torch's schedule, or perfkit's if it records ``on_demand``."""
        import perfkit_torch

        module = perfkit_torch if "on_demand" in options else self.module.profiler
        return module.schedule(**options)

    def seed(self, number: int) -> None:
        self.module.manual_seed(number)

    def label(self, name: str) -> Any:
        return self.module.profiler.record_function(name)

    @property
    def optimizers(self) -> Any:
        return self.module.optim

    def optimizer(self, name: str | type, model: Any) -> Any:
        made = getattr(self.optimizers, name) if isinstance(name, str) else name
        return made(model.parameters(), lr=0.01)

    def clear_gradients(self, optimizer: Any) -> None:
        optimizer.zero_grad()

    def loader(self, rows: int, **options: Any) -> Any:
        return self.module.utils.data.DataLoader(self.module.ones(rows, 3), **options)


class Paddle(Framework):
    """Paddle. Its profilers record every step, if no other scheduler is given."""

    name = "paddle"
    product = "matmul dygraph"
    options = ("record_shapes", "profile_memory", "with_flops")

    def __init__(self) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the import warns that ccache is missing
            self.module = pytest.importorskip("paddle", reason="needs Paddle: pip install 'perfkit[paddle]'")
            pytest.importorskip("paddle.profiler")
        run_in_one_thread(self.module)
        import perfkit_paddle
        from perfkit_paddle import record

        self.perfkit, self.trace_handler, self.demo = perfkit_paddle, perfkit_paddle.trace_handler, record.DEMO
        self.record_script, self.CallbackRecording = record.record_script, record.PaddleRecording
        self.on_host = {"targets": [self.module.profiler.ProfilerTarget.CPU]}
        state = self.module.profiler.ProfilerState
        self.states = (state.CLOSED, state.READY, state.RECORD, state.RECORD_AND_RETURN)

    def profiler(self, schedule: Any = None, **options: Any) -> Any:
        gc.collect()  # frees the profiler of another test, because Paddle allows only one
        return self.module.profiler.Profiler(scheduler=schedule, **self.on_host, **options)

    def schedule(self, **options: Any) -> Any:
        """Return Paddle's scheduler, or perfkit's if it records ``on_demand``. The options have torch's names."""
        import perfkit_paddle

        module = perfkit_paddle if "on_demand" in options else self.module.profiler
        names = {"wait": "closed", "warmup": "ready", "active": "record"}
        return module.make_scheduler(**{names.get(name, name): value for name, value in options.items()})

    def seed(self, number: int) -> None:
        self.module.seed(number)

    def label(self, name: str) -> Any:
        return self.module.profiler.RecordEvent(name)

    @property
    def optimizers(self) -> Any:
        return self.module.optimizer

    def optimizer(self, name: str | type, model: Any) -> Any:
        made = getattr(self.optimizers, name) if isinstance(name, str) else name
        return made(0.01, parameters=model.parameters())

    def clear_gradients(self, optimizer: Any) -> None:
        optimizer.clear_grad()

    def loader(self, rows: int, **options: Any) -> Any:
        data = [np.ones(3, "float32")] * rows
        return self.module.io.DataLoader(data, places=self.module.CPUPlace(), **options)


FRAMEWORKS: dict[str, type[Framework]] = {framework.name: framework for framework in (Torch, Paddle)}
