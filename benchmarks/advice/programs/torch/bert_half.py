"""Train a small BERT to fill in masked tokens, with the mixed precision recipe of a GPU: float16 and a gradient scaler.
This processor has no float16 arithmetic and emulates it. Fix: train in float32."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from training import run

VOCABULARY, LENGTH, WIDTH, HEADS, LAYERS, BATCH = 1000, 32, 128, 4, 2, 8
MASK_TOKEN, MASKED, IGNORED = 1, 0.15, -100


class Bert(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, WIDTH)
        self.positions = nn.Embedding(LENGTH, WIDTH)
        self.norm, self.dropout = nn.LayerNorm(WIDTH), nn.Dropout(0.1)
        layer = nn.TransformerEncoderLayer(WIDTH, HEADS, 4 * WIDTH, dropout=0.1, activation="gelu", batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False)
        self.head = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.GELU(), nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCABULARY))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.tokens(tokens) + self.positions(torch.arange(tokens.shape[1]))
        return self.head(self.encoder(self.dropout(self.norm(x))))


def mask_tokens(tokens: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    chosen = torch.rand(tokens.shape) < MASKED
    return tokens.masked_fill(chosen, MASK_TOKEN), tokens.masked_fill(~chosen, IGNORED)


def training(fixed: bool) -> Iterator[None]:
    torch.manual_seed(0)
    use_amp = not fixed
    corpus = torch.randint(2, VOCABULARY, (2000, LENGTH))
    model = Bert()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.01)
    scaler = torch.amp.GradScaler("cpu", enabled=use_amp)
    while True:
        for rows in torch.randperm(len(corpus)).split(BATCH):
            inputs, labels = mask_tokens(corpus[rows])
            optimizer.zero_grad()
            with torch.autocast("cpu", dtype=torch.float16, enabled=use_amp):
                logits = model(inputs)
                loss = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=IGNORED)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            yield


if __name__ == "__main__":
    run(training, "torch", steps=50)
