"""The frameworks, for tests that both adapters must pass. A framework that is not installed is skipped."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from tests.support.frameworks import FRAMEWORKS, Framework


@pytest.fixture(scope="session", params=FRAMEWORKS)
def framework(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="session")
def native(framework: str) -> Framework:
    return FRAMEWORKS[framework]()


@pytest.fixture(autouse=True)
def _no_profiler(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Leave no profiler alive after a test, because Paddle allows only one per process."""
    yield
    caplog.get_records("call").clear()  # logged tracebacks keep the profiler alive
    gc.collect()
