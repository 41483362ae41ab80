"""Train the value network of a Gomoku player on positions of its own games. Each step builds the planes of features
with nested Python lists. Fix: it builds them with numpy."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import paddle
from paddle import nn
from paddle.nn import functional as F

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from training import run

SIZE, PLANES, CHANNELS, BLOCKS, BATCH = 15, 4, 24, 2, 32
BLACK, WHITE = 1, 2


class Residual(nn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = (nn.Conv2D(CHANNELS, CHANNELS, 3, padding=1, bias_attr=False) for _ in range(2))
        self.norm1, self.norm2 = nn.BatchNorm2D(CHANNELS), nn.BatchNorm2D(CHANNELS)

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        return F.relu(x + self.norm2(self.second(F.relu(self.norm1(self.first(x))))))


class ValueNetwork(nn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2D(PLANES, CHANNELS, 3, padding=1), nn.ReLU())
        self.blocks = nn.Sequential(*(Residual() for _ in range(BLOCKS)))
        self.head = nn.Sequential(
            nn.Conv2D(CHANNELS, 2, 1), nn.ReLU(), nn.Flatten(), nn.Linear(2 * SIZE**2, 64), nn.ReLU(), nn.Linear(64, 1)
        )

    def forward(self, planes: paddle.Tensor) -> paddle.Tensor:
        return paddle.tanh(self.head(self.blocks(self.stem(planes)))).squeeze(-1)


class Position:
    """A board, whose stone was placed last and where, and the outcome for the player to move."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.board = np.zeros((SIZE, SIZE), dtype=np.int64)
        moves = rng.permutation(SIZE**2)[: rng.integers(10, 90)]
        for number, move in enumerate(moves):
            self.board[move // SIZE, move % SIZE] = BLACK if number % 2 == 0 else WHITE
        self.to_move = BLACK if len(moves) % 2 == 0 else WHITE
        self.last = divmod(int(moves[-1]), SIZE)
        self.outcome = float(rng.choice([-1.0, 0.0, 1.0]))
        self.rows: list[list[int]] = self.board.tolist()


def planes_of_lists(position: Position) -> list[list[list[float]]]:
    """Own stones, stones of the opponent, the last move, and who plays black."""
    own, squares = position.to_move, range(SIZE)
    rows = position.rows
    return [
        [[1.0 if rows[y][x] == own else 0.0 for x in squares] for y in squares],
        [[1.0 if rows[y][x] == BLACK + WHITE - own else 0.0 for x in squares] for y in squares],
        [[1.0 if (y, x) == position.last else 0.0 for x in squares] for y in squares],
        [[1.0 if own == BLACK else 0.0 for _ in squares] for _ in squares],
    ]


def planes_of_arrays(position: Position) -> np.ndarray:
    own = position.to_move
    planes = np.zeros((PLANES, SIZE, SIZE), dtype=np.float32)
    planes[0] = position.board == own
    planes[1] = position.board == BLACK + WHITE - own
    planes[2][position.last] = 1.0
    planes[3] = own == BLACK
    return planes


def training(fixed: bool) -> Iterator[None]:
    paddle.seed(0)
    random.seed(0)
    rng = np.random.default_rng(0)
    positions = [Position(rng) for _ in range(2000)]
    model = ValueNetwork()
    optimizer = paddle.optimizer.Momentum(0.01, 0.9, parameters=model.parameters(), weight_decay=1e-4)
    while True:
        batch = random.sample(positions, BATCH)
        if fixed:
            planes = paddle.to_tensor(np.stack([planes_of_arrays(position) for position in batch]))
        else:
            planes = paddle.to_tensor([planes_of_lists(position) for position in batch], dtype="float32")
        outcomes = paddle.to_tensor(np.array([position.outcome for position in batch], dtype="float32"))
        loss = F.mse_loss(model(planes), outcomes)
        loss.backward()
        optimizer.step()
        optimizer.clear_grad()
        yield


if __name__ == "__main__":
    run(training, "paddle", steps=80)
