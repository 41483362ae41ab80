"""Train an embedding of products with a triplet loss. The features come from numpy as float64, and the model was cast
to match them. Fix: float32."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from training import run

PRODUCTS, VIEWS, FEATURES, HIDDEN, EMBEDDING = 400, 8, 512, 512, 128
BATCH_PRODUCTS, BATCH_VIEWS, MARGIN = 64, 4, 0.2


class Embedder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(FEATURES, HIDDEN),
            nn.BatchNorm1d(HIDDEN),
            nn.ReLU(),
            nn.Linear(HIDDEN, HIDDEN),
            nn.BatchNorm1d(HIDDEN),
            nn.ReLU(),
            nn.Linear(HIDDEN, EMBEDDING),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.normalize(self.layers(x), dim=1)


def hardest_triplets(embeddings: torch.Tensor, products: torch.Tensor) -> torch.Tensor:
    distances = 2 - 2 * embeddings @ embeddings.T
    same = products.unsqueeze(0) == products.unsqueeze(1)
    positive = distances.masked_fill(~same, float("-inf")).max(dim=1).values
    negative = distances.masked_fill(same, float("inf")).min(dim=1).values
    return F.relu(positive - negative + MARGIN).mean()


def training(fixed: bool) -> Iterator[None]:
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    centers = rng.standard_normal((PRODUCTS, 1, FEATURES))
    features = centers + rng.standard_normal((PRODUCTS, VIEWS, FEATURES))
    model = Embedder()
    if fixed:
        features = features.astype(np.float32)
    else:
        model = model.double()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    while True:
        chosen = rng.choice(PRODUCTS, BATCH_PRODUCTS, replace=False)
        views = rng.integers(VIEWS, size=(BATCH_PRODUCTS, BATCH_VIEWS))
        batch = torch.from_numpy(features[chosen[:, None], views].reshape(-1, FEATURES))
        products = torch.from_numpy(chosen.repeat(BATCH_VIEWS))
        loss = hardest_triplets(model(batch), products)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield


if __name__ == "__main__":
    run(training, "torch", steps=150)
