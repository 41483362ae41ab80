"""Train 256 small tensors with an optimizer that updates the tensors one by one."""

from __future__ import annotations

import paddle
from measured import measured


def main() -> None:
    paddle.seed(0)
    model = paddle.nn.Sequential(*[paddle.nn.Linear(32, 32) for _ in range(128)])
    optimizer = paddle.optimizer.Adam(1e-6, parameters=model.parameters(), use_multi_tensor=False)

    def train(batch: paddle.Tensor) -> None:
        optimizer.clear_grad()
        model(batch).mean().backward()
        optimizer.step()

    measured([paddle.randn([64, 32])], train)


if __name__ == "__main__":
    main()
