"""Memory (C10) in live runs of both frameworks: by place and by operator, over time, at the peak, and what steps do not
free."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from perfkit_core.api import summarize

LEAK_FLOATS, LEAK_BYTES = 1000, 4000
STEPS = 4

Run = Callable[..., Path]


@pytest.fixture
def torch_run(torch: Any, tmp_path: Path) -> Run:
    """Return a function that records a training and returns its run folder. With ``leak``, each step appends a tensor
    to a list."""
    from perfkit_torch import trace_handler

    def run(leak: bool, **options: Any) -> Path:
        net, kept = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 2)), []
        optimizer = torch.optim.Adam(net.parameters())
        batch = torch.randn(4, 8)
        schedule = torch.profiler.schedule(wait=1, warmup=1, active=STEPS, repeat=1)
        handler = trace_handler(tmp_path / "run")
        with torch.profiler.profile(schedule=schedule, on_trace_ready=handler, **options) as profiler:
            for _ in range(2 + STEPS):
                net(batch).square().sum().backward()
                optimizer.step()
                optimizer.zero_grad()
                if leak:
                    kept.append(torch.ones(LEAK_FLOATS))
                profiler.step()
        return tmp_path / "run"

    return run


@pytest.fixture
def paddle_run(paddle: Any, tmp_path: Path) -> Run:
    """Return the same function for Paddle."""
    from perfkit_paddle import trace_handler

    def run(leak: bool, **options: Any) -> Path:
        net, kept = paddle.nn.Sequential(paddle.nn.Linear(8, 16), paddle.nn.ReLU(), paddle.nn.Linear(16, 2)), []
        optimizer = paddle.optimizer.Adam(parameters=net.parameters())
        batch = paddle.randn([4, 8])
        handler = trace_handler(tmp_path / "run")
        with paddle.profiler.Profiler(scheduler=(2, 2 + STEPS), on_trace_ready=handler, **options) as profiler:
            for _ in range(2 + STEPS):
                net(batch).square().sum().backward()
                optimizer.step()
                optimizer.clear_grad()
                if leak:
                    kept.append(paddle.ones([LEAK_FLOATS]))
                profiler.step()
        return tmp_path / "run"

    return run


MEMORY = {"profile_memory": True}


def check_memory(run: Path, names: set[str]) -> None:
    """Each allocation counts once by operator and once by place. The curve ends at the place's last total and contains
    its peak."""
    table = summarize(run, "memory")
    (place,) = summarize(run, "memory_places").to_dict("records")
    assert place["device"] == "cpu"
    assert names <= set(table["name"])
    for column in ("allocations", "frees"):
        assert table[column].sum() == place[column] > 40
    assert table["increase_bytes"].sum() == place["growth_bytes"]
    curve = summarize(run, "memory_curve")
    assert len(curve) == 1 + place["allocations"] + place["frees"]
    assert curve["allocated_bytes"].max() == place["peak_bytes"]
    assert curve["allocated_bytes"].iloc[-1] == place["end_bytes"]
    assert (curve["unexplained_bytes"].dropna() == 0).all()
    peak = summarize(run, "memory_peak")
    assert peak["bytes"].sum() == place["peak_bytes"]
    assert {"forward", "backward"} & set(summarize(run, "memory", by="phase")["phase"].dropna())


def check_leak(run: Path, operator: str) -> None:
    """Check the exact bytes that each step but the last keeps, and the operator that allocated these bytes."""
    (leak,) = summarize(run, "memory_leaks").to_dict("records")
    assert (leak["name"], leak["steps"], leak["of_steps"], leak["blocks"]) == (
        operator,
        STEPS - 1,
        STEPS - 1,
        STEPS - 1,
    )
    assert (leak["bytes"], leak["avg_step_bytes"]) == ((STEPS - 1) * LEAK_BYTES, LEAK_BYTES)
    steps = summarize(run, "memory_steps")
    assert steps["alive_next_bytes"].tolist()[:-1] == [LEAK_BYTES] * (STEPS - 1)
    assert steps["growth_bytes"].tolist()[1:] == [LEAK_BYTES] * (STEPS - 1)
    peak = summarize(run, "memory_peak").set_index("name")
    assert peak.loc[operator, "bytes"] >= (STEPS - 1) * LEAK_BYTES


def check_steady(run: Path) -> None:
    steps = summarize(run, "memory_steps")
    assert len(steps) == STEPS
    assert steps["growth_bytes"].tolist()[1:] == [0] * (STEPS - 1)
    assert summarize(run, "memory_leaks").empty


def check_says_why(run: Path) -> None:
    from perfkit_core.readers.load import load
    from perfkit_core.views import VIEWS

    trace = load(run)
    for view in (view for view in VIEWS if view.name.startswith("memory") and view.name != "memory_manipulation"):
        assert isinstance(summarize(trace, view.name), pd.DataFrame)
        assert summarize(trace, view.name).empty
        assert "profile_memory=True" in str(view.explain_empty(trace))


def test_C10_memory_torch(torch_run: Run) -> None:
    check_memory(torch_run(False, **MEMORY), {"aten::addmm", "aten::mm"})


def test_C10_memory_paddle(paddle_run: Run) -> None:
    check_memory(paddle_run(False, **MEMORY), {"matmul dygraph", "relu dygraph"})


def test_C10_steady_training_torch(torch_run: Run) -> None:
    """The state of the optimizer was allocated before the recording. Each step replaces the gradients and the loss."""
    check_steady(torch_run(False, **MEMORY))


def test_C10_steady_training_paddle(paddle_run: Run) -> None:
    check_steady(paddle_run(False, **MEMORY))


def test_C10_leak_torch(torch_run: Run) -> None:
    check_leak(torch_run(True, **MEMORY), "aten::ones")


def test_C10_leak_paddle(paddle_run: Run) -> None:
    check_leak(paddle_run(True, **MEMORY), "full dygraph")


def test_C10_without_memory_events_torch(torch_run: Run) -> None:
    check_says_why(torch_run(False))


def test_C10_without_memory_events_paddle(paddle_run: Run) -> None:
    check_says_why(paddle_run(False))
