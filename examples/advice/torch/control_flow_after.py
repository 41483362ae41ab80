"""Update a state from a sequence. The sequence is split into elements once, before the loop."""

from __future__ import annotations

import torch
from measured import layers, measured

DECAY, LENGTH = 0.9, 256


def main() -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = layers(8, 64)
    optimizer = torch.optim.SGD(model.parameters(), 1e-6)

    def train(batch: torch.Tensor) -> None:
        optimizer.zero_grad()
        hidden = model(batch)
        state = torch.zeros(64)
        for element in hidden.unbind():
            state = DECAY * state + element
        loss = state.mean()
        loss.backward()
        optimizer.step()

    measured([torch.randn(LENGTH, 64)], train)


if __name__ == "__main__":
    main()
