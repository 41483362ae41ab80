"""The benchmarks are no part of the installed package: they are imported from the repository."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
if str(ROOT) not in sys.path:
    sys.path.append(str(ROOT))


@pytest.fixture(autouse=True)
def bench_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Inputs and kept figures of a test lie in its own folder."""
    monkeypatch.setenv("PERFKIT_BENCH_DIR", str(tmp_path))
    return tmp_path
