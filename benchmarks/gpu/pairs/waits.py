"""Pairs about waits for the device, and about work on the wrong device."""

from __future__ import annotations

import torch
from torch import nn

from benchmarks.gpu.pairs.pair import DevicePair
from benchmarks.gpu.training import Place, Training, perceptron


def tiny_control(fixed: bool, place: Place) -> Training:
    """An iteration that ends when a counter on the device says so."""
    size = place.size(1024, 32)
    where = "cpu" if fixed else place.device
    matrix, limit = place.randn(size, size) / size**0.5, torch.tensor(12, device=where)
    while True:
        vector, count = place.randn(size, 64), torch.zeros((), dtype=torch.int64, device=where)
        while bool(torch.logical_and(count < limit, count >= 0)):
            vector = torch.tanh(matrix @ vector)
            count = count + 1
        yield


def tiny_schedule(fixed: bool, place: Place) -> Training:
    """The learning rate and its warm-up are computed with tensors of one number."""
    width, where = place.size(1024, 32), "cpu" if fixed else place.device
    net = perceptron(width, 6).to(place.device)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    images, labels = place.randn(place.size(256, 32), width), place.labels(place.size(256, 32), 10)
    number, peak, ramp = (torch.tensor(value, device=where) for value in (0.0, 1e-3, 100.0))
    while True:
        number = number + 1
        rate = peak * torch.minimum(number / ramp, torch.sqrt(ramp / number))
        optimizer.param_groups[0]["lr"] = rate.item()
        nn.functional.cross_entropy(net(images), labels).backward()
        optimizer.step()
        optimizer.zero_grad()
        yield


def loss_item(fixed: bool, place: Place) -> Training:
    """The loss of each of four small batches is read."""
    width = place.size(1024, 32)
    net = perceptron(width, 4).to(place.device)
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
    rows, total, number = place.size(256, 32), 0.0, 0
    images, labels = place.randn(rows, width), place.labels(rows, 10)
    while True:
        losses = torch.zeros((), device=place.device)
        for _ in range(4):
            loss = nn.functional.cross_entropy(net(images), labels)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            if fixed:
                losses += loss.detach()
            else:
                total += loss.item()
        number += 1
        if fixed and number % 50 == 0:
            total += losses.item()
        yield


def large_item(fixed: bool, place: Place) -> Training:
    """The loss is read once per step, and the device is always busy: the fix saves little."""
    width = place.size(2048, 32)
    net = perceptron(width, 6).to(place.device)
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
    rows, total, number = place.size(4096, 64), 0.0, 0
    images, labels = place.randn(rows, width), place.labels(rows, 10)
    while True:
        loss = nn.functional.cross_entropy(net(images), labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        number += 1
        if not fixed or number % 50 == 0:
            total += loss.item()
        yield


def synchronize(fixed: bool, place: Place) -> Training:
    """Parts of a step are timed with the host clock, so the device is synchronised after each part."""
    width = place.size(1024, 32)
    nets = [perceptron(width, 3, width).to(place.device) for _ in range(4)]
    optimizer = torch.optim.AdamW([parameter for net in nets for parameter in net.parameters()])
    images = place.randn(place.size(512, 32), width)
    while True:
        hidden = images
        for net in nets:
            hidden = net(hidden)
            if not fixed:
                place.module.synchronize()
        hidden.square().mean().backward()
        if not fixed:
            place.module.synchronize()
        optimizer.step()
        optimizer.zero_grad()
        yield


def empty_cache(fixed: bool, place: Place) -> Training:
    """The cache of the allocator is emptied in every step."""
    width = place.size(2048, 32)
    net = perceptron(width, 6).to(place.device)
    optimizer = torch.optim.AdamW(net.parameters())
    images, labels = place.randn(place.size(2048, 32), width), place.labels(place.size(2048, 32), 10)
    while True:
        nn.functional.cross_entropy(net(images), labels).backward()
        optimizer.step()
        optimizer.zero_grad()
        if not fixed:
            torch.cuda.empty_cache()  # does nothing without a device
        yield


def waiting_item(fixed: bool, place: Place) -> Training:
    """The loss is read after the backward pass, and the accuracy after it. The first read waits for all work. Reading
    only the accuracy saves nothing: then this read waits."""
    width = place.size(2048, 32)
    net = perceptron(width, 4).to(place.device)
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
    images, labels, total = place.randn(place.size(4096, 64), width), place.labels(place.size(4096, 64), 10), 0.0
    while True:
        scores = net(images)
        loss = nn.functional.cross_entropy(scores, labels)
        right = (scores.argmax(dim=1) == labels).float().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if not fixed:
            total += loss.item()
        total += right.item()
        yield


PAIRS = (
    DevicePair(
        tiny_control, "fixed-point iteration", "the counter of a loop is on the device", "the counter on the host",
        "tiny-ops-on-device",
    ),
    DevicePair(
        tiny_schedule, "perceptron", "the learning rate is computed on the device", "on the host", "tiny-ops-on-device",
    ),
    DevicePair(loss_item, "perceptron", "each loss is read", "read every 50 steps", "host-sync"),
    DevicePair(
        large_item, "large perceptron", "the loss is read in a step of large kernels", "read every 50 steps",
        "host-sync",
    ),
    DevicePair(
        synchronize, "four networks", "the device is synchronised after each part", "not synchronised", "device-sync",
    ),
    DevicePair(empty_cache, "perceptron", "empty_cache() in every step", "the cache is kept", "device-malloc"),
    DevicePair(
        waiting_item, "large perceptron", "two numbers are read, and the first read waits", "only the second is read",
        "waiting-operator",
    ),
)  # fmt: skip
