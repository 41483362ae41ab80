"""Benchmarks run in the folder of their test."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def bench_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Inputs and kept figures of a test lie in its own folder."""
    monkeypatch.setenv("PERFKIT_BENCH_DIR", str(tmp_path))
    return tmp_path
