"""Train a SchNet-like network that predicts the energy of small molecules. The energies of a batch are read out
molecule by molecule, in a loop that selects the atoms of each one. Fix: one index_add over all atoms."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from training import run

ELEMENTS, WIDTH, RADIAL, LAYERS, CUTOFF, BATCH = 5, 64, 32, 3, 4.0, 64


class Molecule(NamedTuple):
    elements: torch.Tensor
    pairs: torch.Tensor
    distances: torch.Tensor
    energy: torch.Tensor


class Interaction(nn.Module):
    """A continuous-filter convolution: messages between neighbours are filtered by their distance."""

    def __init__(self) -> None:
        super().__init__()
        self.filters = nn.Sequential(nn.Linear(RADIAL, WIDTH), nn.SiLU(), nn.Linear(WIDTH, WIDTH))
        self.source = nn.Linear(WIDTH, WIDTH, bias=False)
        self.update = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.SiLU(), nn.Linear(WIDTH, WIDTH))

    def forward(self, x: torch.Tensor, pairs: torch.Tensor, radial: torch.Tensor) -> torch.Tensor:
        messages = self.source(x)[pairs[1]] * self.filters(radial)
        return x + self.update(torch.zeros_like(x).index_add(0, pairs[0], messages))


class SchNet(nn.Module):
    def __init__(self, scatter: bool) -> None:
        super().__init__()
        self.scatter = scatter
        self.embedding = nn.Embedding(ELEMENTS, WIDTH)
        self.register_buffer("centers", torch.linspace(0, CUTOFF, RADIAL))
        self.interactions = nn.ModuleList(Interaction() for _ in range(LAYERS))
        self.readout = nn.Sequential(nn.Linear(WIDTH, WIDTH // 2), nn.SiLU(), nn.Linear(WIDTH // 2, 1))

    def forward(
        self, elements: torch.Tensor, pairs: torch.Tensor, distances: torch.Tensor, owners: torch.Tensor
    ) -> torch.Tensor:
        radial = torch.exp(-10.0 * (distances[:, None] - self.centers) ** 2)
        x = self.embedding(elements)
        for interaction in self.interactions:
            x = interaction(x, pairs, radial)
        atomic = self.readout(x).squeeze(1)
        if self.scatter:
            return atomic.new_zeros(BATCH).index_add(0, owners, atomic)
        energies = []
        for molecule in range(BATCH):
            energies.append(atomic[owners == molecule].sum())
        return torch.stack(energies)


def random_molecule() -> Molecule:
    atoms = int(torch.randint(9, 24, ()))
    elements = torch.randint(ELEMENTS, (atoms,))
    positions = torch.rand(atoms, 3) * 1.8 * atoms ** (1 / 3)
    distances = torch.cdist(positions, positions)
    pairs = ((distances < CUTOFF) & ~torch.eye(atoms, dtype=torch.bool)).nonzero().T
    return Molecule(elements, pairs, distances[pairs[0], pairs[1]], elements.float().mean() + torch.randn(()) * 0.1)


def collate(molecules: list[Molecule]) -> tuple[torch.Tensor, ...]:
    sizes = torch.tensor([len(molecule.elements) for molecule in molecules])
    offsets = (sizes.cumsum(0) - sizes).tolist()
    return (
        torch.cat([molecule.elements for molecule in molecules]),
        torch.cat([molecule.pairs + offset for molecule, offset in zip(molecules, offsets, strict=True)], dim=1),
        torch.cat([molecule.distances for molecule in molecules]),
        torch.repeat_interleave(torch.arange(len(molecules)), sizes),
        torch.stack([molecule.energy for molecule in molecules]),
    )


def training(fixed: bool) -> Iterator[None]:
    torch.manual_seed(0)
    molecules = [random_molecule() for _ in range(2000)]
    loader = DataLoader(molecules, batch_size=BATCH, shuffle=True, drop_last=True, collate_fn=collate)
    model = SchNet(scatter=fixed)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    while True:
        for elements, pairs, distances, owners, energies in loader:
            loss = F.l1_loss(model(elements, pairs, distances, owners), energies)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            yield


if __name__ == "__main__":
    run(training, "torch", steps=80)
