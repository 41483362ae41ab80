"""Train a prototypical network that tells speakers apart after five utterances of each. The prototypes and their
distances are computed in a loop over the speakers. Fix: one mean and one matrix product for all speakers."""

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

SPEAKERS, UTTERANCES, FEATURES = 300, 20, 64
WAYS, SHOTS, QUERIES, WIDTH = 60, 5, 2, 32


def recordings(rng: np.random.Generator) -> np.ndarray:
    """Acoustic features of some utterances of each speaker, mixed from the traits of the voice and of the moment."""
    voices = np.repeat(rng.normal(0, 1, (SPEAKERS, 1, 8)), UTTERANCES, axis=1)
    moments = rng.normal(0, 1, (SPEAKERS, UTTERANCES, 8))
    traits = np.concatenate([voices, moments], axis=2)
    features = np.tanh(traits @ rng.normal(0, 0.5, (16, FEATURES)))
    return (features + rng.normal(0, 0.1, features.shape)).astype(np.float32)


def episodes(rng: np.random.Generator) -> Iterator[tuple[paddle.Tensor, paddle.Tensor, paddle.Tensor]]:
    """The examples of an episode, speaker after speaker, and the queries with the numbers of their speakers."""
    utterances = recordings(rng)
    labels = paddle.to_tensor(np.repeat(np.arange(WAYS), QUERIES))
    while True:
        speakers = rng.choice(SPEAKERS, WAYS, replace=False)
        picked = np.stack([rng.choice(UTTERANCES, SHOTS + QUERIES, replace=False) for _ in speakers])
        features = utterances[speakers[:, None], picked]
        support = features[:, :SHOTS].reshape(-1, FEATURES)
        queries = features[:, SHOTS:].reshape(-1, FEATURES)
        yield paddle.to_tensor(support), paddle.to_tensor(queries), labels


def speaker_encoder() -> nn.Layer:
    return nn.Sequential(
        nn.Linear(FEATURES, 256, bias_attr=False),
        nn.BatchNorm1D(256),
        nn.ReLU(),
        nn.Linear(256, 256, bias_attr=False),
        nn.BatchNorm1D(256),
        nn.ReLU(),
        nn.Linear(256, WIDTH),
    )


def distances_by_speaker(support: paddle.Tensor, queries: paddle.Tensor) -> paddle.Tensor:
    distances = []
    for number in range(WAYS):
        prototype = support[number * SHOTS : (number + 1) * SHOTS].mean(axis=0)
        distances.append((queries - prototype).square().sum(axis=1))
    return paddle.stack(distances, axis=1)


def distances_at_once(support: paddle.Tensor, queries: paddle.Tensor) -> paddle.Tensor:
    prototypes = support.reshape([WAYS, SHOTS, WIDTH]).mean(axis=1)
    products = paddle.matmul(queries, prototypes, transpose_y=True)
    return queries.square().sum(axis=1, keepdim=True) - 2 * products + prototypes.square().sum(axis=1)


def training(fixed: bool) -> Iterator[None]:
    paddle.seed(0)
    distances = distances_at_once if fixed else distances_by_speaker
    encoder = speaker_encoder()
    optimizer = paddle.optimizer.Adam(1e-3, parameters=encoder.parameters())
    for step, (support, queries, labels) in enumerate(episodes(np.random.default_rng(0))):
        embedded = encoder(paddle.concat([support, queries]))
        scores = -distances(embedded[: WAYS * SHOTS], embedded[WAYS * SHOTS :])
        loss = F.cross_entropy(scores, labels)
        loss.backward()
        optimizer.step()
        optimizer.clear_grad()
        if step % 50 == 0:
            accuracy = float((scores.argmax(axis=1) == labels).astype("float32").mean())
            print(f"episode {step}: loss {float(loss):.3f}, accuracy {accuracy:.3f}", file=sys.stderr)
        yield


if __name__ == "__main__":
    run(training, "paddle", steps=450)
