"""Update a state from a sequence. Every iteration of the loop selects an element of a tensor."""

from __future__ import annotations

import paddle
from measured import measured

DECAY, LENGTH = 0.9, 256


def main() -> None:
    paddle.seed(0)
    model = paddle.nn.Sequential(*[paddle.nn.Linear(64, 64) for _ in range(8)])
    optimizer = paddle.optimizer.SGD(1e-6, parameters=model.parameters())

    def train(batch: paddle.Tensor) -> None:
        optimizer.clear_grad()
        hidden = model(batch)
        state = paddle.zeros([64])
        for i in range(LENGTH):
            state = DECAY * state + hidden[i]
        loss = state.mean()
        loss.backward()
        optimizer.step()

    measured([paddle.randn([LENGTH, 64])], train)


if __name__ == "__main__":
    main()
