"""``perfkit.profile`` records with torch."""

from __future__ import annotations

from pathlib import Path

import pytest

import perfkit
from perfkit_core.api import summarize
from tests.support.profiled_loops import CHECKS

torch = pytest.importorskip("torch")


@pytest.mark.parametrize("name", CHECKS)
def test_a_loop(tmp_path: Path, name: str) -> None:
    values = torch.ones(2, 2)
    CHECKS[name](lambda: torch.mm(values, values), "aten::mm", tmp_path, "torch")


@pytest.mark.parametrize("workers", [0, 1])
def test_torchs_loader(tmp_path: Path, workers: int) -> None:
    loader = torch.utils.data.DataLoader(torch.randn(20, 3), batch_size=2, num_workers=workers)
    loop = perfkit.profile(loader, tmp_path, window=(2, 6), framework="torch", record_shapes=True)
    assert (len(loop), loop.batch_size) == (10, 2)
    for batch in loop:
        batch + 1
    assert summarize(tmp_path, "steps")["step"].tolist() == [2, 3, 4, 5, 6]
    found = summarize(tmp_path, "input_pipeline")
    assert found["loads"].tolist() == [1] * 5
    adds = summarize(tmp_path, "operators", by="shape")
    assert "[[2,3],[],[]]" in " ".join(map(str, adds.loc[adds["name"] == "aten::add", "shapes"]))
