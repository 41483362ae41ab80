"""Live torch tests need torch; everything else in this folder reads files."""

from __future__ import annotations

import warnings

import pytest


@pytest.fixture(autouse=True)
def _quiet_torch() -> None:
    """torch warns once a process that a profiler forgets earlier cycles, which is what our handler is for."""
    warnings.filterwarnings("ignore", message="Warning: Profiler clears events")
