"""The frameworks, for tests that both adapters must pass. A framework that is not installed is skipped."""

from __future__ import annotations

import functools
import gc
import sys
from collections.abc import Callable, Iterator

import pytest

from tests.support import recording_scripts
from tests.support.frameworks import FRAMEWORKS, Framework


@pytest.fixture(scope="session", params=FRAMEWORKS)
def framework(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="session")
def native(framework: str) -> Framework:
    return FRAMEWORKS[framework]()


@pytest.fixture(scope="session")
def run_script(framework: str) -> Callable[..., tuple[int, str]]:
    """Return a function that runs a script in a new process, which has already imported the framework. It returns the
    exit code and stderr."""
    pytest.importorskip(framework, reason=f"needs {framework}: pip install 'perfkit[{framework}]'")
    quiet = "import warnings\nwarnings.simplefilter('ignore')\n"  # frameworks emit warnings
    return functools.partial(
        recording_scripts.run, prelude=quiet, modules=recording_scripts.FRAMEWORK_MODULES[framework]
    )


@pytest.fixture(autouse=True)
def _no_profiler(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Leave no profiler alive after a test, because Paddle allows only one per process. A profiler that was not stopped
    leaves its timer, which compares the datasets of all loaders that follow."""
    yield
    if "paddle.profiler" in sys.modules:
        timer = sys.modules["paddle.profiler"].timer.benchmark()
        while timer.current_event is not None:
            timer.end()
    caplog.get_records("call").clear()  # logged tracebacks keep the profiler alive
    gc.collect()
