"""Train an acoustic model of convolutions and GRUs with the CTC loss. The norm of the gradients is logged each step; a
loop over the parameters reads the norm of each one. Fix: one total norm, which is read once."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import get_total_norm

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from training import run

CHARACTERS, MELS, FRAMES, HIDDEN, LAYERS, BATCH = 29, 64, 160, 96, 3, 8


class AcousticModel(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.convolutions = nn.Sequential(
            nn.Conv1d(MELS, 96, 5, stride=2, padding=2),
            nn.BatchNorm1d(96),
            nn.ReLU(),
            nn.Conv1d(96, 96, 5, stride=2, padding=2),
            nn.BatchNorm1d(96),
            nn.ReLU(),
        )
        self.gru = nn.GRU(96, HIDDEN, LAYERS, bidirectional=True, batch_first=True, dropout=0.1)
        self.head = nn.Sequential(nn.LayerNorm(2 * HIDDEN), nn.Linear(2 * HIDDEN, CHARACTERS))

    def forward(self, spectrograms: torch.Tensor) -> torch.Tensor:
        features, _ = self.gru(self.convolutions(spectrograms).transpose(1, 2))
        return F.log_softmax(self.head(features), dim=2)


def norm_of_gradients(model: nn.Module) -> float:
    total = 0.0
    for parameter in model.parameters():
        if parameter.grad is not None:
            total += parameter.grad.detach().norm(2).item() ** 2
    return total**0.5


def training(fixed: bool) -> Iterator[None]:
    torch.manual_seed(0)
    spectrograms = torch.randn(400, MELS, FRAMES)
    transcripts = torch.randint(1, CHARACTERS, (400, 16))
    input_lengths, target_lengths = torch.full((BATCH,), FRAMES // 4), torch.full((BATCH,), 16)
    model = AcousticModel()
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-4)
    norms = []
    while True:
        for rows in torch.randperm(len(spectrograms)).split(BATCH):
            log_probabilities = model(spectrograms[rows]).transpose(0, 1)
            loss = F.ctc_loss(log_probabilities, transcripts[rows], input_lengths, target_lengths)
            optimizer.zero_grad()
            loss.backward()
            if fixed:
                norms.append(get_total_norm([parameter.grad for parameter in model.parameters()]).item())
            else:
                norms.append(norm_of_gradients(model))
            optimizer.step()
            yield


if __name__ == "__main__":
    run(training, "torch", steps=60)
