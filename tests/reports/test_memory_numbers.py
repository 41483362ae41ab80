"""Categories of memory when gradients are accumulated over several micro-batches."""

from __future__ import annotations

from pathlib import Path

import pytest

pytestmark = pytest.mark.live

WEIGHTS = 4 * (32 * 4 + 4)
BATCH = 4 * 64 * 32
RIGHT = {"gradients": WEIGHTS, "inputs": 2 * BATCH}
"""While a micro-batch is allocated, the one before it is alive. Its gradients are those of a layer of 32 to 4."""


def _categories(found) -> dict[str, int]:
    return {row["category"]: row["bytes"] for row in found.rows("memory_categories") if row["category"] in RIGHT}


@pytest.mark.parametrize("micro_batches", [2, 4, 3])
def test_the_next_micro_batch_is_an_input(reported, tmp_path: Path, micro_batches: int) -> None:
    """With two micro-batches: gradients 528 bytes, inputs 16,384."""
    import torch

    path = tmp_path / "trace.json"
    model = torch.nn.Linear(32, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step() -> None:
        optimizer.zero_grad()
        for _ in range(micro_batches):
            batch = torch.randn(64, 32)
            model(batch).pow(2).sum().backward()
        optimizer.step()

    step()
    with torch.profiler.profile(
        schedule=torch.profiler.schedule(wait=0, warmup=1, active=2), profile_memory=True, record_shapes=True,
        with_stack=True, acc_events=True, on_trace_ready=lambda profiler: profiler.export_chrome_trace(str(path)),
    ) as profiler:  # fmt: skip
        for _ in range(3):
            step()
            profiler.step()
    assert _categories(reported(str(path))) == RIGHT == {"gradients": 528, "inputs": 16_384}


@pytest.mark.parametrize("micro_batches", [2, 4])
def test_the_next_micro_batch_of_paddle_is_an_input(reported, tmp_path: Path, micro_batches: int) -> None:
    path = tmp_path / "trace.pb"
    _record_paddle(path, micro_batches)
    assert _categories(reported(str(path))) == RIGHT


def _record_paddle(path: Path, micro_batches: int) -> None:
    """Record two steps. The profiler ends with this function: Paddle has one in a process."""
    import paddle

    model = paddle.nn.Linear(32, 4)
    optimizer = paddle.optimizer.SGD(parameters=model.parameters())

    def step() -> None:
        for _ in range(micro_batches):
            batch = paddle.randn([64, 32])
            model(batch).square().sum().backward()
        optimizer.step()
        optimizer.clear_grad()

    step()
    with paddle.profiler.Profiler(
        scheduler=(1, 3), profile_memory=True,
        on_trace_ready=lambda profiler: profiler.profiler_result.save(str(path), "pb"),
    ) as profiler:  # fmt: skip
        for _ in range(3):
            step()
            profiler.step()
