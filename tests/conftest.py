"""What all tests share: where the real traces lie."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def traces() -> Path:
    """The folder of real traces (environment variable PERFKIT_TRACES, default ../shared/traces)."""
    folder = Path(os.environ.get("PERFKIT_TRACES", ROOT.parent / "shared" / "traces"))
    if not folder.is_dir():
        pytest.skip(f"no real traces at {folder}: set PERFKIT_TRACES")
    return folder
