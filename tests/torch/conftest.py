"""Skips live tests if torch is not installed. The other tests in this folder read files."""

from __future__ import annotations

import warnings

import pytest


@pytest.fixture(autouse=True)
def _quiet_torch() -> None:
    """Ignore torch's warning that a profiler forgets earlier cycles, because the handler stores these cycles."""
    warnings.filterwarnings("ignore", message="Warning: Profiler clears events")
