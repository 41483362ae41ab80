"""Fixtures for tests of benchmarks."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def bench_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Keep the inputs and results of a test in the folder of the test."""
    monkeypatch.setenv("PERFKIT_BENCH_DIR", str(tmp_path))
    return tmp_path
