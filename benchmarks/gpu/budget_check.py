"""Tests whose budgets the pytest plugin counts on a device. The numbers follow from the code: ``python -m pytest
benchmarks/gpu/budget_check.py`` must pass on a GPU, but for the two tests that are named after their failure."""

from __future__ import annotations

import os

import pytest
import torch

DEVICE = os.environ.get("PERFKIT_DEVICE", "cuda")


@pytest.fixture(autouse=True)
def _warm() -> None:
    (torch.ones(8, device=DEVICE) + 1).sum().item()


@pytest.fixture
def numbers() -> torch.Tensor:
    return torch.ones(1 << 20, device=DEVICE)


@pytest.mark.perf_budget(kernels=3, syncs=0, copies=0)
def test_three_kernels(numbers: torch.Tensor) -> None:
    numbers.add_(1).mul_(2).relu_()


@pytest.mark.perf_budget(kernels=2)
def test_two_of_three_kernels_fails(numbers: torch.Tensor) -> None:
    numbers.add_(1).mul_(2).relu_()


@pytest.mark.perf_budget(kernels=1, syncs=2, copies=2)
def test_two_items(numbers: torch.Tensor) -> None:
    numbers[0].item()
    numbers.add_(1)
    numbers[1].item()


@pytest.mark.perf_budget(syncs=0)
def test_item_fails(numbers: torch.Tensor) -> None:
    numbers[0].item()


@pytest.mark.perf_budget(copies=2, peak_bytes="8 MiB")
def test_copies(numbers: torch.Tensor) -> None:
    numbers.clone()
    numbers.cpu()
