"""Record three models in one of two frameworks, with the same layers: ``models.py FRAMEWORK FOLDER``."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import Any

STEPS, WARM = 7, 3
framework, folder = sys.argv[1:]
TORCH = framework == "torch"
lib: Any = import_module(framework)
nn, functional = lib.nn, lib.nn.functional
Module = nn.Module if TORCH else nn.Layer
conv, norm, pool = (getattr(nn, f"{kind}2{'d' if TORCH else 'D'}") for kind in ("Conv", "BatchNorm", "MaxPool"))


class Residual(Module):  # type: ignore[misc]
    def __init__(self, *layers: Any) -> None:
        super().__init__()
        self.layers = nn.Sequential(*layers)

    def forward(self, x: Any) -> Any:
        return x + self.layers(x)


def encoder() -> list[Any]:
    if TORCH:
        layer = nn.TransformerEncoderLayer(64, 4, 128, 0.0, batch_first=True)
        return [nn.TransformerEncoder(layer, 3, enable_nested_tensor=False)]
    return [nn.TransformerEncoder(nn.TransformerEncoderLayer(64, 4, 128, 0.0), 3)]


def block() -> Residual:
    return Residual(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 64))


def convolutions() -> Residual:
    return Residual(conv(8, 8, 3, padding=1), nn.ReLU(), conv(8, 8, 3, padding=1), norm(8))


MODELS: dict[str, tuple[list[int], Any]] = {
    "mlp": ([32, 64], lambda: [*(block() for _ in range(4)), nn.Linear(64, 10)]),
    "encoder": ([4, 16, 64], lambda: [*encoder(), nn.Linear(64, 10)]),
    "convnet": ([4, 3, 8, 8], lambda: [
        conv(3, 8, 3, padding=1), norm(8), nn.ReLU(), convolutions(), convolutions(), pool(2), nn.Flatten(),
        nn.Linear(128, 10),
    ]),
}  # fmt: skip


def record(name: str, shape: list[int], layers: Any) -> None:
    """Paddle has one profiler at a time: it ends with this function."""
    handler = import_module(f"perfkit_{framework}").trace_handler(Path(folder) / name)
    model = nn.Sequential(*layers())
    model.train()
    parameters = model.parameters()
    rate = 0.01
    optimizer = lib.optim.SGD(parameters, rate) if TORCH else lib.optimizer.SGD(rate, parameters=parameters)
    samples = shape[0] * (shape[1] if name == "encoder" else 1)
    if TORCH:
        plan = lib.profiler.schedule(wait=0, warmup=WARM, active=STEPS - WARM)
        profiler = lib.profiler.profile(schedule=plan, on_trace_ready=handler)
    else:
        plan = lib.profiler.make_scheduler(closed=0, ready=WARM, record=STEPS - WARM, repeat=1)
        profiler = lib.profiler.Profiler(scheduler=plan, on_trace_ready=handler)
    profiler.start()
    for _ in range(STEPS):
        target = lib.randint(0, 10, (samples,) if TORCH else [samples])
        loss = functional.cross_entropy(model(lib.randn(shape)).reshape([samples, 10]), target)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad() if TORCH else optimizer.clear_grad()
        profiler.step()
    profiler.stop()


for name, (shape, layers) in MODELS.items():
    record(name, shape, layers)
