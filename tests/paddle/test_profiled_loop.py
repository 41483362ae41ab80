"""``perfkit.profile`` records with Paddle."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import perfkit
from perfkit_core.api import summarize
from tests.support.profiled_loops import CHECKS


@pytest.mark.parametrize("name", CHECKS)
def test_a_loop(paddle: Any, tmp_path: Path, name: str) -> None:
    values = paddle.ones([2, 2])
    CHECKS[name](lambda: paddle.matmul(values, values), "matmul dygraph", tmp_path, "paddle")


@pytest.mark.parametrize("workers", [0, 1])
def test_paddles_loader(paddle: Any, tmp_path: Path, workers: int) -> None:
    loader = paddle.io.DataLoader(
        [np.ones(3, "float32")] * 20, batch_size=2, num_workers=workers, places=paddle.CPUPlace()
    )
    loop = perfkit.profile(loader, tmp_path, window=(2, 6), framework="paddle")
    assert (len(loop), loop.batch_size) == (10, 2)
    for batch in loop:
        batch + 1
    assert summarize(tmp_path, "steps")["step"].tolist() == [2, 3, 4, 5, 6]
    assert (summarize(tmp_path, "input_pipeline")["loads"] > 0).all()
