"""Run operators with 32 threads, one for each core of the machine, although the container may use fewer cores."""

from __future__ import annotations

import torch
from measured import layers, measured


def main() -> None:
    torch.manual_seed(0)
    torch.set_num_threads(32)
    model = layers(16, 512)
    optimizer = torch.optim.SGD(model.parameters(), 1e-6)

    def train(batch: torch.Tensor) -> None:
        optimizer.zero_grad()
        model(batch).mean().backward()
        optimizer.step()

    measured([torch.randn(64, 512)], train)


if __name__ == "__main__":
    main()
