"""Pairs about copies between the host and the device, and about the memory of the device."""

from __future__ import annotations

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from benchmarks.gpu.pairs.pair import DevicePair
from benchmarks.gpu.training import Place, Training, perceptron


class Scaled(nn.Module):
    """Scales the features with eight numbers, on the host or as a buffer."""

    def __init__(self, width: int, buffer: bool) -> None:
        super().__init__()
        self.net, self.head = perceptron(width, 3, width), nn.Linear(width, 10)
        scales = torch.linspace(0.5, 2, 8)
        if buffer:
            self.register_buffer("scales", scales)
        else:
            self.scales = scales

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        hidden = self.net(images).unflatten(1, (8, -1)) * self.scales.to(images.device)[:, None]
        return self.head(hidden.flatten(1))


def compiled_scales(fixed: bool, place: Place) -> Training:
    width = place.size(1024, 32)
    module = Scaled(width, fixed).to(place.device)
    optimizer = torch.optim.SGD(module.parameters(), lr=1e-3)
    net = torch.compile(module)
    images, labels = place.randn(256, width), place.labels(256, 10)
    while True:
        nn.functional.cross_entropy(net(images), labels).backward()
        optimizer.step()
        optimizer.zero_grad()
        yield


def round_trip(fixed: bool, place: Place) -> Training:
    """The hidden state goes to the host between two networks, and back."""
    width = place.size(2048, 32)
    nets = [perceptron(width, 2, width).to(place.device) for _ in range(2)]
    optimizer = torch.optim.AdamW([parameter for net in nets for parameter in net.parameters()])
    images = place.randn(1024, width)
    while True:
        hidden = nets[0](images)
        if not fixed:
            hidden = hidden.cpu().to(place.device)
        nets[1](hidden).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        yield


def noise_on_host(fixed: bool, place: Place) -> Training:
    """A denoiser draws its noise on the host."""
    width = place.size(1024, 32)
    net = perceptron(width, 4, width).to(place.device)
    optimizer = torch.optim.AdamW(net.parameters())
    images = place.randn(512, width)
    while True:
        noise = place.randn(512, width) if fixed else torch.randn(512, width).to(place.device)
        (net(images + noise) - noise).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        yield


def zeros_on_host(fixed: bool, place: Place) -> Training:
    """A recurrent network begins with a state of zeros that is made on the host."""
    width, rows = place.size(512, 32), place.size(256, 8)
    net = nn.GRU(width, width, num_layers=2, batch_first=True).to(place.device)
    optimizer = torch.optim.AdamW(net.parameters())
    images = place.randn(rows, 20, width)
    while True:
        where = place.device if fixed else "cpu"
        state = torch.zeros(2, rows, width, device=where).to(place.device)
        net(images, state)[0].square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        yield


def pageable_batches(fixed: bool, place: Place) -> Training:
    """Batches of images are copied from pageable memory."""
    width, pixels = place.size(64, 4), place.size(224, 16)
    net = nn.Sequential(
        nn.Conv2d(3, width, 7, stride=4, padding=3), nn.ReLU(), nn.Conv2d(width, width, 3, stride=2), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 10),
    ).to(place.device)  # fmt: skip
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
    batches = [torch.randn(128, 3, pixels, pixels) for _ in range(4)]
    if fixed and place.device == "cuda":
        batches = [batch.pin_memory() for batch in batches]
    labels = place.labels(128, 10)
    while True:
        for batch in batches:
            images = batch.to(place.device, non_blocking=fixed)
            nn.functional.cross_entropy(net(images), labels).backward()
            optimizer.step()
            optimizer.zero_grad()
            yield


def full_memory(fixed: bool, place: Place) -> Training:
    """Activations take over nine tenths of the device's memory. Checkpoints save memory and cost time."""
    layers, width, total = 24, 256, 1 << 20
    if place.device == "cuda":
        total = int(torch.cuda.get_device_properties(0).total_memory * 0.9)
    rows = total // (2 * width * layers * 2)  # a linear layer and its activation each keep a tensor of 16-bit numbers
    nets = nn.ModuleList(nn.Sequential(nn.Linear(width, width), nn.GELU()) for _ in range(layers))
    nets.to(place.device, torch.bfloat16)
    while True:
        hidden = place.randn(rows, width, dtype=torch.bfloat16)
        for net in nets:
            hidden = checkpoint(net, hidden, use_reentrant=False) if fixed else net(hidden)
        hidden.sum().backward()
        for parameter in nets.parameters():
            parameter.grad = None
        del hidden
        yield


PAIRS = (
    DevicePair(
        compiled_scales, "compiled perceptron", "compiled code copies numbers from the host", "a buffer",
        "host-tensor-in-graph",
    ),
    DevicePair(
        round_trip, "two networks", "the hidden state goes to the host and back", "stays on the device",
        "ping-pong-copies",
    ),
    DevicePair(noise_on_host, "denoiser", "noise is drawn on the host", "on the device", "fill-then-copy"),
    DevicePair(zeros_on_host, "GRU", "the first state is made on the host", "on the device", "fill-then-copy"),
    DevicePair(
        pageable_batches, "small convolution network", "batches of 77 MB in pageable memory", "in pinned memory",
        "pageable-copies",
    ),
    DevicePair(
        full_memory, "wide perceptron", "activations fill the memory", "checkpoints", "memory-near-limit",
        options={"profile_memory": True}, steps=4,
    ),
)  # fmt: skip
