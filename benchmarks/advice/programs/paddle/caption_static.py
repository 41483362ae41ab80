"""Train a decoder that writes captions for images from their features. Its attention and its gates run many small
operators for each word. Fix: ``paddle.jit.to_static``."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import paddle
from paddle import nn
from paddle.nn import functional as F

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from training import run

VOCABULARY, LENGTH, REGIONS, FEATURES, WIDTH, BATCH = 500, 16, 16, 64, 64, 8


class Decoder(nn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(VOCABULARY, WIDTH)
        self.initial = nn.Linear(FEATURES, WIDTH)
        self.keys, self.query, self.energy = nn.Linear(FEATURES, WIDTH), nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 1)
        self.gate = nn.Linear(WIDTH, FEATURES)
        self.from_input, self.from_state = nn.Linear(WIDTH + FEATURES, 3 * WIDTH), nn.Linear(WIDTH, 3 * WIDTH)
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, features: paddle.Tensor, captions: paddle.Tensor) -> paddle.Tensor:
        state = F.tanh(self.initial(features.mean(axis=1)))
        keys, words = self.keys(features), self.words(captions)
        states = []
        for time in range(LENGTH):
            energies = self.energy(F.tanh(keys + self.query(state).unsqueeze(1)))
            context = (F.softmax(energies, axis=1) * features).sum(axis=1) * F.sigmoid(self.gate(state))
            state = self._recur(paddle.concat([words[:, time], context], axis=1), state)
            states.append(state)
        return self.head(paddle.stack(states, axis=1))

    def _recur(self, x: paddle.Tensor, state: paddle.Tensor) -> paddle.Tensor:
        reset_x, update_x, new_x = paddle.split(self.from_input(x), 3, axis=1)
        reset_h, update_h, new_h = paddle.split(self.from_state(state), 3, axis=1)
        update = F.sigmoid(update_x + update_h)
        new = F.tanh(new_x + F.sigmoid(reset_x + reset_h) * new_h)
        return update * state + (1.0 - update) * new


def training(fixed: bool) -> Iterator[None]:
    paddle.seed(0)
    features = paddle.randn([1000, REGIONS, FEATURES])
    captions = paddle.randint(0, VOCABULARY, [len(features), LENGTH + 1])
    model = Decoder()
    if fixed:
        model = paddle.jit.to_static(model)
    optimizer = paddle.optimizer.Adam(1e-3, parameters=model.parameters())
    while True:
        batch = paddle.randint(0, len(features), [BATCH])
        targets = captions[batch]
        logits = model(features[batch], targets[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1), targets[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        optimizer.clear_grad()
        yield


if __name__ == "__main__":
    run(training, "paddle", steps=130)
