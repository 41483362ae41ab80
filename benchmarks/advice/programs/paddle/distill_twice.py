"""Distil a large network for small images into a small one. The student runs once for the loss, and again for the
accuracy on the same images. Fix: use the outputs of the first run for both."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import paddle
from paddle import nn
from paddle.io import DataLoader, TensorDataset
from paddle.nn import functional as F

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from training import run

SIZE, CLASSES, BATCH, TEMPERATURE = 32, 10, 32, 4.0


def conv(inputs: int, outputs: int) -> nn.Layer:
    layers = [nn.Conv2D(inputs, outputs, 3, padding=1, bias_attr=False), nn.BatchNorm2D(outputs), nn.ReLU()]
    return nn.Sequential(*layers)


def network(*widths: int) -> nn.Layer:
    layers: list[nn.Layer] = []
    channels = 3
    for width in widths:
        layers += [conv(channels, width), nn.MaxPool2D(2)]
        channels = width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2D(1), nn.Flatten(), nn.Linear(channels, CLASSES))


def distillation_loss(student: paddle.Tensor, teacher: paddle.Tensor, labels: paddle.Tensor) -> paddle.Tensor:
    soft = F.kl_div(F.log_softmax(student / TEMPERATURE), F.softmax(teacher / TEMPERATURE), reduction="batchmean")
    return 0.7 * TEMPERATURE**2 * soft + 0.3 * F.cross_entropy(student, labels)


def training(fixed: bool) -> Iterator[None]:
    paddle.seed(0)
    np.random.seed(0)
    rng = np.random.default_rng(0)
    images = rng.standard_normal((1600, 3, SIZE, SIZE), dtype="float32")
    labels = rng.integers(0, CLASSES, (1600, 1))
    data = TensorDataset([paddle.to_tensor(images), paddle.to_tensor(labels)])
    loader = DataLoader(data, batch_size=BATCH, shuffle=True, drop_last=True)
    teacher, student = network(32, 64, 128), network(16, 32, 64)
    teacher.eval()
    optimizer = paddle.optimizer.Adam(learning_rate=1e-3, parameters=student.parameters())
    while True:
        accuracies = []
        for batch, answers in loader:
            with paddle.no_grad():
                teacher_logits = teacher(batch)
            logits = student(batch)
            loss = distillation_loss(logits, teacher_logits, answers)
            loss.backward()
            optimizer.step()
            optimizer.clear_grad()
            predictions = logits if fixed else student(batch)
            accuracies.append(float(paddle.metric.accuracy(predictions, answers)))
            yield
        print(f"accuracy {np.mean(accuracies):.3f}")


if __name__ == "__main__":
    run(training, "paddle", steps=50)
