"""Both frameworks for the live tests of features."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.frameworks import FRAMEWORKS, Framework
from tests.support.paddle_executor import run_in_one_thread


@pytest.fixture(scope="session", params=["torch", "paddle"])
def framework(request: pytest.FixtureRequest) -> str:
    """Run a test with each framework. Recordings that depend on the framework are module-scoped."""
    return str(request.param)


@pytest.fixture(scope="session")
def native(framework: str) -> Framework:
    return FRAMEWORKS[framework]()


@pytest.fixture(scope="session")
def torch() -> Any:
    """Return the module ``torch``."""
    return pytest.importorskip("torch", reason="needs torch")


@pytest.fixture(scope="session")
def paddle() -> Any:
    """Return the module ``paddle``."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the import warns that ccache is missing
        module = pytest.importorskip("paddle", reason="needs PaddlePaddle")
        pytest.importorskip("paddle.profiler")
    run_in_one_thread(module)
    return module


@pytest.fixture(autouse=True)
def _no_profiler() -> Iterator[None]:
    """Leave no profiler alive after a test, because Paddle allows only one per process."""
    yield
    gc.collect()
