"""What all recorded trainings have in common: where they run, how large they are, and how they are recorded.

A training is a generator. Each ``yield`` ends a step, as in the proving ground of advice (benchmarks/advice/programs).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

import perfkit_torch
from perfkit_core.readers.load import load
from perfkit_core.trace.model.schema import STEP

WAIT, WARMUP, AFTER = 16, 2, 6
"""Steps before the window of the profiler, in its warm-up, and after the window."""
Training = Iterator[None]


@dataclass(frozen=True, slots=True)
class Place:
    """Where trainings run: the device, and whether sizes are small, to try the code on a CPU."""

    device: str
    quick: bool

    @property
    def module(self) -> Any:
        """torch.cuda or torch.cpu, which have streams, events and ``synchronize``."""
        return torch.get_device_module(self.device)

    @property
    def name(self) -> str:
        return torch.cuda.get_device_name() if self.device == "cuda" else "cpu"

    def size(self, full: int, quick: int) -> int:
        return quick if self.quick else full

    def randn(self, *shape: int, **options: Any) -> torch.Tensor:
        return torch.randn(*shape, device=self.device, **options)

    def labels(self, count: int, classes: int) -> torch.Tensor:
        return torch.randint(0, classes, (count,), device=self.device)


def perceptron(width: int, layers: int, classes: int = 10) -> nn.Sequential:
    """Return linear layers of one width with ReLU between them."""
    hidden = [part for _ in range(layers) for part in (nn.Linear(width, width), nn.ReLU())]
    return nn.Sequential(*hidden, nn.Linear(width, classes))


def supervised(
    net: nn.Module, batches: Iterable[tuple[torch.Tensor, torch.Tensor]], optimizer: Any = None, autocast: Any = None
) -> Training:
    """Train a classifier on the batches, one per step. ``autocast`` encloses each forward pass."""
    optimizer = optimizer or torch.optim.AdamW(net.parameters(), lr=1e-4)
    for images, labels in batches:
        if autocast is None:
            loss = nn.functional.cross_entropy(net(images), labels)
        else:
            with autocast:
                loss = nn.functional.cross_entropy(net(images), labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        yield


def captured(step: Callable[[], Any], place: Place) -> Callable[[], Any]:
    """Return a call that replays the step as a CUDA graph. On a CPU, return the step itself."""
    if place.device != "cuda":
        return step
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph.replay


def record(
    training: Training, folder: Path, steps: int, also: Iterable[Callable[[Any], Any]] = (), **options: Any
) -> dict[str, int]:
    """Record some steps of the training through perfkit's handler. Return the numbers of recorded events and steps."""
    handler = perfkit_torch.trace_handler(folder, also=also)
    schedule = perfkit_torch.schedule(wait=WAIT, warmup=WARMUP, active=steps, repeat=1)
    options = {"record_shapes": True, **options}
    with torch.profiler.profile(schedule=schedule, on_trace_ready=handler, **options) as profiler:
        for _, _ in zip(range(WAIT + WARMUP + steps + AFTER), training, strict=False):
            profiler.step()
    handler.flush()
    trace = load(folder)
    return {"events": len(trace), "steps": int((trace.host & trace.rows("kind", STEP)).sum())}


def native(folder: Path) -> Callable[[Any], None]:
    """Return a callback that writes torch's own trace, and the numbers of torch's own ``key_averages()``."""

    def write(profiler: Any) -> None:
        averages = [
            {
                "key": one.key, "device_type": one.device_type.name, "count": one.count,
                **{name: getattr(one, name) for name in AVERAGES},
            }
            for one in profiler.key_averages()
        ]  # fmt: skip
        (folder / "averages.json").write_text(json.dumps(averages, indent=1))
        profiler.export_chrome_trace(str(folder / "native.json.gz"))

    return write


AVERAGES = (
    "self_cpu_time_total", "cpu_time_total", "self_device_time_total", "device_time_total", "self_cpu_memory_usage",
    "cpu_memory_usage", "self_device_memory_usage", "device_memory_usage",
)  # fmt: skip
"""Attributes of an item of ``key_averages()``: times in µs and memory in bytes."""
