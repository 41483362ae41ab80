"""Fixtures for Paddle's trace files, and for Paddle in live tests."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from perfkit_core.trace.model.trace import Trace
from tests.support.paddle_executor import run_in_one_thread


@pytest.fixture(scope="session")
def paddle_traces(traces: Path) -> Path:
    """Return the folder of Paddle's trace files."""
    return traces / "paddle"


@pytest.fixture(scope="session")
def paddle_module() -> Any:
    """Return the module ``paddle``, for fixtures that record once. They must delete their profiler."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the import warns about missing ccache
        module = pytest.importorskip("paddle")
        pytest.importorskip("paddle.profiler")
    run_in_one_thread(module)
    return module


@pytest.fixture
def paddle(paddle_module: Any, caplog: pytest.LogCaptureFixture) -> Iterator[Any]:
    """Yield the module ``paddle``. No profiler may be alive afterwards, because Paddle allows only one per process. A
    profiler that was not stopped leaves its timer, which compares the datasets of all loaders that follow."""
    timer = paddle_module.profiler.timer.benchmark()
    yield paddle_module
    while timer.current_event is not None:
        timer.end()
    caplog.get_records("call").clear()  # logged tracebacks keep the profiler alive
    gc.collect()


def spans(trace: Trace) -> pd.DataFrame:
    """Return all events with the fields that identify them and their parents, in an order that does not depend on the
    reader."""
    frame = trace.to_pandas()
    for column in ("name", "kind", "category", "device", "phase", "op_name", "shapes", "stack", "copy_kind", "args"):
        frame[column] = frame[column].astype(object).where(frame[column].notna(), None)
    parent = trace.ints("parent")
    for column in ("name", "start_ns", "dur_ns"):
        found = frame[column].to_numpy(object)[parent]
        frame[f"parent_{column}"] = pd.Series(found, dtype=object).where(parent >= 0, None)
    keys = ["name", "category", "tid", "stream", "correlation", "start_ns", "address", "bytes"]
    return frame.sort_values(keys).reset_index(drop=True)


@pytest.fixture(scope="session", name="spans")
def spans_fixture() -> Any:
    """Return the function :func:`spans`."""
    return spans
