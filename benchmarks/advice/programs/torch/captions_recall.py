"""Train two encoders so that pictures and their captions come to lie close together (CLIP). For the log, a step encodes
the batch a second time and counts the captions that are found. Fix: count with the similarities of the loss."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from training import run

PAIRS, SIZE, WORDS, LENGTH, BATCH, WIDTH = 1024, 32, 500, 16, 32, 96


class Captioned(Dataset):
    """Pictures of two coloured squares, and captions whose words tell the colours and the places."""

    def __init__(self) -> None:
        self.colors = torch.rand(PAIRS, 2, 3)
        self.places = torch.randint(0, SIZE - 10, (PAIRS, 2, 2))
        self.fillers = torch.randint(200, WORDS, (PAIRS, LENGTH))

    def __len__(self) -> int:
        return PAIRS

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        picture = torch.zeros(3, SIZE, SIZE)
        caption = self.fillers[index].clone()
        squares = zip(self.colors[index], self.places[index].tolist(), strict=True)
        for number, (color, (top, left)) in enumerate(squares):
            picture[:, top : top + 10, left : left + 10] = color[:, None, None]
            words = [*(color * 50).long().tolist(), 60 + top, 100 + left]
            caption[8 * number : 8 * number + len(words)] = torch.tensor(words)
        return picture, caption


class Pictures(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for inputs, outputs in ((3, 24), (24, 48), (48, 96)):
            layers += [nn.Conv2d(inputs, outputs, 3, stride=2, padding=1), nn.GroupNorm(8, outputs), nn.ReLU()]
            layers += [nn.Conv2d(outputs, outputs, 3, padding=1), nn.GroupNorm(8, outputs), nn.ReLU()]
        self.layers = nn.Sequential(*layers)
        self.project = nn.Linear(96, WIDTH)

    def forward(self, pictures: torch.Tensor) -> torch.Tensor:
        return self.project(self.layers(pictures).mean((2, 3)))


class Captions(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        self.places = nn.Parameter(0.02 * torch.randn(LENGTH, WIDTH))
        layer = nn.TransformerEncoderLayer(WIDTH, 4, 2 * WIDTH, dropout=0.0, batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.project = nn.Linear(WIDTH, WIDTH)

    def forward(self, captions: torch.Tensor) -> torch.Tensor:
        return self.project(self.layers(self.words(captions) + self.places).mean(1))


class Clip(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.pictures, self.captions = Pictures(), Captions()
        self.scale = nn.Parameter(torch.tensor(2.6))

    def forward(self, pictures: torch.Tensor, captions: torch.Tensor) -> torch.Tensor:
        """The similarity of each picture with each caption."""
        seen = F.normalize(self.pictures(pictures), dim=1)
        read = F.normalize(self.captions(captions), dim=1)
        return self.scale.exp() * seen @ read.T


def recall(similarities: torch.Tensor, among: int) -> float:
    """The share of the pictures whose caption is among the most similar captions."""
    found = similarities.topk(among, dim=1).indices == torch.arange(len(similarities)).unsqueeze(1)
    return found.any(1).float().mean().item()


def training(fixed: bool) -> Iterator[None]:
    torch.manual_seed(0)
    loader = DataLoader(Captioned(), batch_size=BATCH, shuffle=True, drop_last=True)
    model = Clip()
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-4, weight_decay=0.1)
    log: deque[tuple[float, float, float]] = deque(maxlen=100)
    while True:
        for pictures, captions in loader:
            similarities = model(pictures, captions)
            targets = torch.arange(len(pictures))
            loss = (F.cross_entropy(similarities, targets) + F.cross_entropy(similarities.T, targets)) / 2
            with torch.no_grad():
                scores = similarities.detach() if fixed else model(pictures, captions)
                log.append((loss.item(), recall(scores, 1), recall(scores, 5)))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            yield


if __name__ == "__main__":
    run(training, "torch", steps=120)
