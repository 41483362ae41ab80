"""Both frameworks for the live tests of features."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Iterator
from typing import Any

import pytest


@pytest.fixture
def torch() -> Any:
    """The module; torch warns once a process that a profiler forgets earlier cycles."""
    warnings.filterwarnings("ignore", message="Warning: Profiler clears events")
    return pytest.importorskip("torch", reason="needs torch")


@pytest.fixture
def paddle() -> Iterator[Any]:
    """The module. Afterwards no profiler is alive: Paddle allows one in a process."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the import itself warns (missing ccache)
        module = pytest.importorskip("paddle", reason="needs PaddlePaddle")
        pytest.importorskip("paddle.profiler")
    yield module
    gc.collect()
