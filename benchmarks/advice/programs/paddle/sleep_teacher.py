"""Train a network that finds the stages of sleep in brain waves, most of which have no labels. A mean teacher labels
them. The student runs on them for the loss, and again to log how often it agrees with the teacher. Fix: the agreement
is calculated from the first run."""

from __future__ import annotations

import copy
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import paddle
from paddle import nn
from paddle.nn import functional as F

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from training import run

CHANNELS, SAMPLES, STAGES, LABELLED, UNLABELLED = 2, 1500, 5, 4, 16
DECAY, CONFIDENCE = 0.99, 0.3


class ResidualBlock(nn.Layer):
    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv1D(inputs, outputs, 7, stride=2, padding=3)
        self.conv2 = nn.Conv1D(outputs, outputs, 7, padding=3)
        self.shortcut = nn.Conv1D(inputs, outputs, 1, stride=2)
        self.norm1, self.norm2 = nn.GroupNorm(4, outputs), nn.GroupNorm(4, outputs)

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        y = self.norm2(self.conv2(F.relu(self.norm1(self.conv1(x)))))
        return F.relu(y + self.shortcut(x))


def sleep_net() -> nn.Layer:
    return nn.Sequential(
        nn.Conv1D(CHANNELS, 16, 25, stride=5, padding=12),
        nn.ReLU(),
        ResidualBlock(16, 32),
        ResidualBlock(32, 48),
        ResidualBlock(48, 64),
        nn.AdaptiveAvgPool1D(1),
        nn.Flatten(),
        nn.Linear(64, STAGES),
    )


@paddle.no_grad()
def move_teacher(teacher: nn.Layer, student: nn.Layer) -> None:
    for slow, fast in zip(teacher.parameters(), student.parameters(), strict=True):
        slow.set_value(DECAY * slow + (1 - DECAY) * fast)


def augment(signals: paddle.Tensor, noise: float) -> paddle.Tensor:
    scale = 1 + 0.1 * paddle.randn([signals.shape[0], CHANNELS, 1])
    return signals * scale + noise * paddle.randn(signals.shape)


def training(fixed: bool) -> Iterator[None]:
    paddle.seed(0)
    rng = np.random.default_rng(0)
    signals = paddle.to_tensor(rng.standard_normal((640, CHANNELS, SAMPLES), dtype=np.float32))
    stages = paddle.to_tensor(rng.integers(0, STAGES, 128))
    student = sleep_net()
    teacher = copy.deepcopy(student)
    teacher.eval()
    optimizer = paddle.optimizer.Adam(1e-3, parameters=student.parameters())
    agreements = []
    while True:
        known = paddle.randint(0, len(stages), [LABELLED])
        unknown = signals[paddle.randint(len(stages), len(signals), [UNLABELLED])]
        with paddle.no_grad():
            confidence, pseudo_labels = F.softmax(teacher(augment(unknown, 0.05))).topk(1)
        strong = augment(unknown, 0.3)
        logits = student(strong)
        losses = F.cross_entropy(logits, pseudo_labels, reduction="none")
        consistency = (losses * (confidence > CONFIDENCE).astype("float32")).mean()
        loss = F.cross_entropy(student(augment(signals[known], 0.3)), stages[known]) + consistency
        loss.backward()
        predictions = logits if fixed else student(strong)
        agreements.append(float((predictions.argmax(1) == pseudo_labels.squeeze(1)).astype("float32").mean()))
        optimizer.step()
        optimizer.clear_grad()
        move_teacher(teacher, student)
        if len(agreements) % 100 == 0:
            print(f"agreement {np.mean(agreements[-100:]):.3f}")
        yield


if __name__ == "__main__":
    run(training, "paddle", steps=50)
