"""Both frameworks for the live tests of features."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.paddle_executor import run_in_one_thread


@pytest.fixture
def torch() -> Any:
    """Return the module ``torch``. torch warns once per process that a profiler forgets earlier cycles."""
    warnings.filterwarnings("ignore", message="Warning: Profiler clears events")
    return pytest.importorskip("torch", reason="needs torch")


@pytest.fixture
def paddle() -> Iterator[Any]:
    """Return the module ``paddle``. Afterwards no profiler may be alive, because Paddle allows only one per process."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the import warns that ccache is missing
        module = pytest.importorskip("paddle", reason="needs PaddlePaddle")
        pytest.importorskip("paddle.profiler")
    run_in_one_thread(module)
    yield module
    gc.collect()
