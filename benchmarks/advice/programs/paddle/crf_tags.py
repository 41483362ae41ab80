"""Train a tagger of named entities with a conditional random field. The forward algorithm loops over time and over tags
in Python. Fix: it calculates all tags of a time step at once."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import paddle
from paddle import nn
from paddle.nn import functional as F

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from training import run

VOCABULARY, TAGS, LENGTH, WIDTH, BATCH = 2000, 9, 16, 64, 32


class CRF(nn.Layer):
    def __init__(self, vectorised: bool) -> None:
        super().__init__()
        self.vectorised = vectorised
        self.start = self.create_parameter([TAGS], default_initializer=nn.initializer.Normal(0.0, 0.1))
        self.transitions = self.create_parameter([TAGS, TAGS], default_initializer=nn.initializer.Normal(0.0, 0.1))

    def forward(self, scores: paddle.Tensor, tags: paddle.Tensor) -> paddle.Tensor:
        return (self._partition(scores) - self._score(scores, tags)).mean()

    def _partition(self, scores: paddle.Tensor) -> paddle.Tensor:
        alpha = self.start + scores[:, 0]
        for time in range(1, LENGTH):
            if self.vectorised:
                alpha = paddle.logsumexp(alpha.unsqueeze(2) + self.transitions, axis=1) + scores[:, time]
            else:
                columns = [
                    paddle.logsumexp(alpha + self.transitions[:, tag], axis=1) + scores[:, time, tag]
                    for tag in range(TAGS)
                ]
                alpha = paddle.stack(columns, axis=1)
        return paddle.logsumexp(alpha, axis=1)

    def _score(self, scores: paddle.Tensor, tags: paddle.Tensor) -> paddle.Tensor:
        emitted = paddle.take_along_axis(scores, tags.unsqueeze(2), axis=2).squeeze(2).sum(axis=1)
        pairs = (tags[:, :-1] * TAGS + tags[:, 1:]).flatten()
        moved = paddle.gather(self.transitions.flatten(), pairs).reshape([BATCH, LENGTH - 1]).sum(axis=1)
        return emitted + moved + paddle.gather(self.start, tags[:, 0])


class Tagger(nn.Layer):
    def __init__(self, vectorised: bool) -> None:
        super().__init__()
        self.words = nn.Embedding(VOCABULARY, WIDTH)
        self.convolution = nn.Conv1D(WIDTH, WIDTH, 3, padding=1, data_format="NLC")
        self.tags = nn.Linear(WIDTH, TAGS)
        self.crf = CRF(vectorised)

    def forward(self, words: paddle.Tensor, tags: paddle.Tensor) -> paddle.Tensor:
        x = self.words(words)
        return self.crf(self.tags(x + F.relu(self.convolution(x))), tags)


def training(fixed: bool) -> Iterator[None]:
    paddle.seed(0)
    words = paddle.randint(0, VOCABULARY, [4000, LENGTH])
    tags = paddle.where(words % 5 == 0, words % TAGS, paddle.zeros_like(words))
    model = Tagger(vectorised=fixed)
    optimizer = paddle.optimizer.Adam(1e-3, parameters=model.parameters())
    while True:
        for start in range(0, len(words) - BATCH + 1, BATCH):
            loss = model(words[start : start + BATCH], tags[start : start + BATCH])
            loss.backward()
            optimizer.step()
            optimizer.clear_grad()
            yield


if __name__ == "__main__":
    run(training, "paddle", steps=140)
