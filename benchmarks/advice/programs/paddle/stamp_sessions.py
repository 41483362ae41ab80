"""Train STAMP, which recommends the next item of a shopping session by its attention to the items clicked so far. A
loop attends to the clicks of one session after another, because sessions have different lengths. Fix: pad the sessions,
and attend to all of them at once with a mask."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import paddle
from paddle import nn
from paddle.nn import functional as F

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from training import run

ITEMS, WIDTH, LONGEST, BATCH = 3000, 80, 20, 64


class Stamp(nn.Layer):
    def __init__(self, fixed: bool) -> None:
        super().__init__()
        self.fixed = fixed
        self.items = nn.Embedding(ITEMS, WIDTH)
        self.of_clicks = nn.Linear(WIDTH, WIDTH)
        self.of_last = nn.Linear(WIDTH, WIDTH, bias_attr=False)
        self.of_mean = nn.Linear(WIDTH, WIDTH, bias_attr=False)
        self.score = nn.Linear(WIDTH, 1, bias_attr=False)
        self.interest = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh())
        self.current = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh())

    def attend_each(self, sessions: paddle.Tensor, lengths: paddle.Tensor) -> tuple[paddle.Tensor, paddle.Tensor]:
        attended, lasts = [], []
        for session, length in zip(sessions, lengths.tolist(), strict=True):
            clicks = self.items(session[:length])
            last, mean = clicks[-1], clicks.mean(axis=0)
            hidden = F.sigmoid(self.of_clicks(clicks) + self.of_last(last) + self.of_mean(mean))
            attended.append((self.score(hidden) * clicks).sum(axis=0))
            lasts.append(last)
        return paddle.stack(attended), paddle.stack(lasts)

    def attend_all(self, sessions: paddle.Tensor, lengths: paddle.Tensor) -> tuple[paddle.Tensor, paddle.Tensor]:
        lengths = lengths.unsqueeze(1)
        mask = (paddle.arange(LONGEST) < lengths).astype("float32").unsqueeze(2)
        clicks = self.items(sessions) * mask
        last = self.items(paddle.take_along_axis(sessions, lengths - 1, axis=1))
        mean = clicks.sum(axis=1, keepdim=True) / lengths.astype("float32").unsqueeze(2)
        hidden = F.sigmoid(self.of_clicks(clicks) + self.of_last(last) + self.of_mean(mean))
        return (self.score(hidden) * clicks).sum(axis=1), last.squeeze(1)

    def forward(self, sessions: paddle.Tensor, lengths: paddle.Tensor) -> paddle.Tensor:
        attend = self.attend_all if self.fixed else self.attend_each
        attended, last = attend(sessions, lengths)
        return paddle.matmul(self.interest(attended) * self.current(last), self.items.weight, transpose_y=True)


def click_batches(rng: np.random.Generator) -> Iterator[tuple[paddle.Tensor, paddle.Tensor, paddle.Tensor]]:
    """Sessions that wander among neighbouring items. The last click of a session is the one to recommend."""
    while True:
        lengths = rng.integers(3, LONGEST + 1, BATCH)
        starts = rng.integers(0, ITEMS, (BATCH, 1))
        walks = (starts + rng.integers(-5, 6, (BATCH, LONGEST + 1)).cumsum(axis=1)) % ITEMS
        nexts = walks[np.arange(BATCH), lengths]
        sessions = np.where(np.arange(LONGEST) < lengths[:, None], walks[:, :LONGEST], 0)
        yield paddle.to_tensor(sessions), paddle.to_tensor(lengths), paddle.to_tensor(nexts)


def training(fixed: bool) -> Iterator[None]:
    paddle.seed(0)
    model = Stamp(fixed)
    optimizer = paddle.optimizer.Adam(0.003, parameters=model.parameters())
    recall = 0.0
    for sessions, lengths, nexts in click_batches(np.random.default_rng(0)):
        scores = model(sessions, lengths)
        loss = F.cross_entropy(scores, nexts)
        loss.backward()
        optimizer.step()
        optimizer.clear_grad()
        found = scores.detach().topk(20)[1] == nexts.unsqueeze(1)
        recall = 0.9 * recall + 0.1 * found.any(axis=1).astype("float32").mean().item()
        yield


if __name__ == "__main__":
    run(training, "paddle", steps=200)
