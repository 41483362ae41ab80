"""Train 256 small tensors with an optimizer that updates the tensors one by one."""

from __future__ import annotations

import torch
from measured import layers, measured


def main() -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = layers(128, 32)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-6, foreach=False)

    def train(batch: torch.Tensor) -> None:
        optimizer.zero_grad()
        model(batch).mean().backward()
        optimizer.step()

    measured([torch.randn(64, 32)], train)


if __name__ == "__main__":
    main()
