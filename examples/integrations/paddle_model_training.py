"""Train a small model with paddle.Model and record steps 5 to 9 into ``runs/hapi``.

Needs: pip install "perfkit[paddle]"
Then: perfkit summary runs/hapi
"""

from __future__ import annotations

import numpy as np
import paddle

from perfkit_paddle.integrations.hapi import PerfkitCallback


class Rows(paddle.io.Dataset):
    """Random rows with ten classes."""

    def __getitem__(self, index: int) -> tuple[np.ndarray, np.ndarray]:
        random = np.random.RandomState(index)
        return random.rand(64).astype("float32"), random.randint(0, 10, (1,))

    def __len__(self) -> int:
        return 512


if __name__ == "__main__":
    net = paddle.nn.Sequential(paddle.nn.Linear(64, 128), paddle.nn.ReLU(), paddle.nn.Linear(128, 10))
    model = paddle.Model(net)
    model.prepare(paddle.optimizer.Adam(parameters=net.parameters()), paddle.nn.CrossEntropyLoss())
    callback = PerfkitCallback("runs/hapi", steps=(5, 9), profile_memory=True)
    model.fit(Rows(), Rows(), batch_size=64, epochs=2, verbose=0, callbacks=[callback])
