"""Paddle models whose events are hard to assign to layers: with branches, shared layers and nested containers. The
functions take the module ``paddle``, so that this file can be imported without Paddle."""

from __future__ import annotations

from typing import Any


def net(paddle: Any) -> Any:
    """Return a model with convolutions, a branch, attention and a layer that is called twice. Its outputs are in a
    dictionary."""
    nn = paddle.nn

    class Block(nn.Layer):
        def __init__(self) -> None:
            super().__init__()
            self.body = nn.Sequential(nn.Conv2D(3, 4, 3, padding=1), nn.BatchNorm2D(4), nn.ReLU())
            self.short = nn.Conv2D(3, 4, 1)

        def forward(self, x: Any) -> Any:
            return self.body(x) + self.short(x)

    class Net(nn.Layer):
        def __init__(self) -> None:
            super().__init__()
            self.blocks = nn.LayerList([Block()])
            self.attention = nn.TransformerEncoderLayer(4, 2, 8, dropout=0.1)
            self.shared = nn.Linear(4, 4)
            self.again = self.shared
            self.lstm = nn.LSTM(4, 4)
            self.unused = nn.Linear(2, 2)

        def forward(self, picture: Any, shift: Any = None) -> Any:
            x = picture
            for block in self.blocks:
                x = block(x)
            x = self.attention(x.flatten(2).transpose([0, 2, 1]) * 2.0)
            x = self.again(nn.functional.relu_(self.shared(x)))
            x, _ = self.lstm(x)
            return {"logits": (x if shift is None else x + shift).mean(1), "nothing": None}

    return Net()


def train(paddle: Any, model: Any, **keywords: Any) -> None:
    """Run one step without an optimizer."""
    model(paddle.ones([2, 3, 4, 4]), **keywords)["logits"].square().sum().backward()
    model.clear_gradients()
