"""Small trainings, of which a few steps are recorded. Tests read the recordings."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from itertools import repeat
from pathlib import Path
from typing import Any

import torch
from torch import nn

from benchmarks.gpu.training import Place, Training, captured, native, perceptron, record, supervised

STEPS = 4
"""Number of recorded steps."""


def mlp(place: Place) -> Training:
    width = place.size(1024, 64)
    net = perceptron(width, 2).to(place.device)
    return supervised(net, repeat((place.randn(256, width), place.labels(256, 10))))


def conv(place: Place) -> Training:
    width = place.size(64, 8)
    blocks = [
        part for before in (3, width, width)
        for part in (nn.Conv2d(before, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU())
    ]  # fmt: skip
    net = nn.Sequential(*blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 10)).to(place.device)
    pixels = place.size(64, 8)
    return supervised(net, repeat((place.randn(32, 3, pixels, pixels), place.labels(32, 10))))


class Classifier(nn.Module):
    """A transformer encoder over an embedding, and the mean over its positions."""

    def __init__(self, width: int, layers: int, words: int = 1000) -> None:
        super().__init__()
        self.embed = nn.Embedding(words, width)
        layer = nn.TransformerEncoderLayer(width, 8, 4 * width, batch_first=True, dropout=0.1)
        self.encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Linear(width, 10)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(self.encoder(self.embed(tokens)).mean(dim=1))


def transformer(place: Place) -> Training:
    net = Classifier(place.size(512, 32), 2).to(place.device)
    tokens = torch.randint(0, 1000, (16, place.size(128, 16)), device=place.device)
    autocast = torch.autocast(place.device, dtype=torch.bfloat16)
    return supervised(net, repeat((tokens, place.labels(16, 10))), autocast=autocast)


def compiled(place: Place) -> Training:
    width = place.size(512, 32)
    net = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.LayerNorm(width), nn.Linear(width, 10)).to(place.device)
    return supervised(torch.compile(net), repeat((place.randn(128, width), place.labels(128, 10))))


def graphs(place: Place) -> Training:
    width = place.size(256, 32)
    net = perceptron(width, 4).to(place.device)
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
    images, labels = place.randn(64, width), place.labels(64, 10)

    def step() -> None:
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(images), labels).backward()
        optimizer.step()

    replay = captured(step, place)
    while True:
        images.copy_(place.randn(64, width))
        replay()
        yield


def streams(place: Place) -> Training:
    """Two streams compute at the same time. Events order them, and the host waits for one event."""
    size, module = place.size(1024, 64), place.module
    side, done, begun = module.Stream(), module.Event(), module.Event()
    left, right = place.randn(size, size), place.randn(size, size)
    while True:
        begun.record()
        with module.stream(side):
            begun.wait(side)
            for _ in range(4):
                right = torch.tanh(right @ right / size)
            done.record(side)
        for _ in range(4):
            left = torch.tanh(left @ left / size)
        done.wait(module.current_stream())
        left = left + right
        finished = module.Event()
        finished.record()
        finished.synchronize()
        side.wait_stream(module.current_stream())
        yield


def copies(place: Place) -> Training:
    """Copies of 4 MiB: pinned and pageable, in both directions, within the device, and a fill."""
    count = place.size(1 << 20, 1 << 10)
    pageable, target = torch.randn(count), place.randn(count)
    pinned = pageable.pin_memory() if place.device == "cuda" else pageable
    while True:
        target.copy_(pageable)
        target.copy_(pinned, non_blocking=True)
        other = target.clone()
        pinned.copy_(other, non_blocking=True)
        pageable.copy_(target)
        target.zero_()
        yield


def item(place: Place) -> Training:
    width = place.size(1024, 64)
    net = perceptron(width, 4).to(place.device)
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
    images, labels, total = place.randn(1024, width), place.labels(1024, 10), 0.0
    while True:
        loss = nn.functional.cross_entropy(net(images), labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        total += loss.item()
        yield


class SlowImages(torch.utils.data.Dataset[tuple[torch.Tensor, int]]):
    """Images that take some milliseconds each."""

    def __init__(self, width: int) -> None:
        self.width = width

    def __len__(self) -> int:
        return 1 << 20

    def __getitem__(self, at: int) -> tuple[torch.Tensor, int]:
        time.sleep(0.002)
        return torch.full((self.width,), at % 7 / 7), at % 10


def slow_loader(place: Place) -> Training:
    width = place.size(512, 32)
    net = perceptron(width, 2).to(place.device)
    loader = torch.utils.data.DataLoader(SlowImages(width), batch_size=8)
    return supervised(net, ((images.to(place.device), labels.to(place.device)) for images, labels in loader))


def accumulation(place: Place) -> Training:
    width = place.size(512, 32)
    net = perceptron(width, 2).to(place.device)
    optimizer = torch.optim.AdamW(net.parameters())
    images, labels = place.randn(32, width), place.labels(32, 10)
    while True:
        for _ in range(4):
            (nn.functional.cross_entropy(net(images), labels) / 4).backward()
        optimizer.step()
        optimizer.zero_grad()
        yield


def memory_growth(place: Place) -> Training:
    """Each step keeps the graph of its loss, so memory grows."""
    width = place.size(512, 32)
    net = perceptron(width, 2).to(place.device)
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
    images, labels, kept = place.randn(256, width), place.labels(256, 10), []
    while True:
        hidden = net[:-1](images)
        kept.append(hidden.relu())
        nn.functional.cross_entropy(net[-1](hidden), labels).backward()
        optimizer.step()
        optimizer.zero_grad()
        yield


def control(place: Place, where: str) -> Training:
    """Numbers that only control the loop are tensors on the device ``where``."""
    size = place.size(512, 32)
    matrix, vector = place.randn(size, size) / size**0.5, place.randn(size, 1)
    limit = torch.tensor(8, device=where)
    while True:
        count, stop = torch.zeros((), dtype=torch.int64, device=where), torch.tensor(False, device=where)
        while not stop:  # bool() of a tensor on the device waits for it
            vector = torch.tanh(matrix @ vector)
            count = count + 1
            stop = torch.logical_or(count >= limit, count < 0)
        yield


def control_on_device(place: Place) -> Training:
    return control(place, place.device)


def control_on_host(place: Place) -> Training:
    return control(place, "cpu")


def collectives(place: Place) -> Training:
    """DistributedDataParallel with one process."""
    os.environ.setdefault("NCCL_SOCKET_IFNAME", "lo")
    with tempfile.TemporaryDirectory() as folder:
        backend = "nccl" if place.device == "cuda" else "gloo"
        torch.distributed.init_process_group(backend, init_method=f"file://{folder}/store", rank=0, world_size=1)
        width = place.size(512, 32)
        net = nn.parallel.DistributedDataParallel(perceptron(width, 2).to(place.device))
        yield from supervised(net, repeat((place.randn(64, width), place.labels(64, 10))))


SYNC_EVENTS = {"experimental_config": torch.profiler._ExperimentalConfig(enable_cuda_sync_events=True)}
PROGRAMS: dict[str, tuple[Callable[[Place], Training], dict[str, Any]]] = {
    "mlp": (mlp, {}),
    "conv": (conv, {}),
    "transformer": (transformer, {}),
    "compiled": (compiled, {}),
    "graphs": (graphs, {}),
    "streams": (streams, {}),
    "streams-sync-events": (streams, SYNC_EVENTS),
    "copies": (copies, {}),
    "item": (item, {}),
    "item-sync-events": (item, SYNC_EVENTS),
    "slow-loader": (slow_loader, {}),
    "accumulation": (accumulation, {}),
    "memory-growth": (memory_growth, {"profile_memory": True}),
    "control-on-device": (control_on_device, {}),
    "control-on-host": (control_on_host, {}),
    "stacks": (mlp, {"with_stack": True, "with_flops": True}),
    "collectives": (collectives, {}),
}
"""Name → the training, and options of the profiler."""


def record_program(name: str, place: Place, folder: Path) -> dict[str, Any]:
    """Record a program into the folder, with torch's own trace and numbers."""
    torch.manual_seed(0)
    program, options = PROGRAMS[name]
    return record(program(place), folder / "run", STEPS, (native(folder),), **options)
