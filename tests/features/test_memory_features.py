"""Memory in live runs of both frameworks: what steps do not free, and recordings without memory events."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from perfkit_core.api import summarize
from perfkit_core.readers.load import load
from perfkit_core.views.builtin import VIEWS
from tests.support.frameworks import Framework

LEAK_FLOATS, LEAK_BYTES = 1000, 4000
STEPS = 4

Run = Callable[..., Path]
"""A function that records a training and returns its run folder. With ``leak``, each step appends a tensor to a list.
Equal trainings are recorded once."""


@pytest.fixture(scope="module")
def run(native: Framework, tmp_path_factory: pytest.TempPathFactory) -> Run:
    @functools.cache
    def run(leak: bool, **options: Any) -> Path:
        nn = native.module.nn
        net, leaked = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2)), []
        optimizer, batch = native.optimizer("Adam", net), native.module.randn([4, 8])
        folder = tmp_path_factory.mktemp(native.name)
        schedule = native.schedule(wait=1, warmup=1, active=STEPS, repeat=1)
        with native.profiler(schedule, on_trace_ready=native.trace_handler(folder), **options) as profiler:
            for _ in range(2 + STEPS):
                net(batch).square().sum().backward()
                optimizer.step()
                native.clear_gradients(optimizer)
                if leak:
                    leaked.append(native.ones(LEAK_FLOATS))
                profiler.step()
        return folder

    return run


MEMORY = {"profile_memory": True}


def test_a_leak_has_exact_bytes_and_the_operator_that_allocated_them(run: Run, framework: str) -> None:
    """Each step but the last keeps the bytes."""
    folder, operator = run(True, **MEMORY), {"torch": "aten::ones", "paddle": "full dygraph"}[framework]
    (leak,) = summarize(folder, "memory_leaks").to_dict("records")
    assert leak["name"] == operator
    assert [leak[name] for name in ("steps", "of_steps", "blocks")] == [STEPS - 1] * 3
    assert (leak["bytes"], leak["avg_step_bytes"]) == ((STEPS - 1) * LEAK_BYTES, LEAK_BYTES)
    steps = summarize(folder, "memory_steps")
    assert steps["alive_next_bytes"].tolist()[:-1] == [LEAK_BYTES] * (STEPS - 1)
    assert steps["growth_bytes"].tolist()[1:] == [LEAK_BYTES] * (STEPS - 1)
    peak = summarize(folder, "memory_peak").set_index("name")
    assert peak.loc[operator, "bytes"] >= (STEPS - 1) * LEAK_BYTES


def test_without_memory_events_all_views_name_the_option(run: Run) -> None:
    trace = load(run(False))
    for view in (view for view in VIEWS if view.name.startswith("memory") and view.name != "memory_manipulation"):
        assert isinstance(summarize(trace, view.name), pd.DataFrame)
        assert summarize(trace, view.name).empty
        assert "profile_memory=True" in str(view.explain_empty(trace))
