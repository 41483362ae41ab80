"""Rule 35: compilation during training, in synthetic traces and in recordings of both frameworks. Times are in µs. The
outcomes are in ``tests/golden/advice/rules``."""

from __future__ import annotations

from pathlib import Path

import pytest

from perfkit_core.advice.rule_input import RuleInput
from perfkit_core.advice.rules.recompilation import find as compiled_again
from perfkit_core.readers.load import load
from perfkit_core.trace.model.trace import Trace
from tests.support.events import host, trace
from tests.support.paddle_executor import run_in_one_thread
from tests.support.rule_cases import check_rule

US = 1000
TORCH, PADDLE = "_compile.compile_inner (dynamo_timed)", "create_new_interpretercore"


def training(name: str, compiling: tuple[int, ...], kind: str = "operator") -> Trace:
    """Return five steps of 1000 µs. Steps in ``compiling`` take 1300 µs: they compile for 300 µs, with a nested
    compilation event of 100 µs."""
    rows, at = [], 0
    for step in range(5):
        more = 300 * (step in compiling)
        rows += [host(f"step {step}", "step", at, 1000 + more, step=step), host("run", "operator", at + 400, 500)]
        if more:
            rows += [host(name, kind, at + 50, more), host(name, kind, at + 60, 100)]
            rows[-3]["start_ns"] += more
        at += 1000 + more
    return trace([row | {"start_ns": row["start_ns"] * US, "dur_ns": row["dur_ns"] * US} for row in rows])


def test_recompilation() -> None:
    """If one step compiles, the median step does not change. If each step compiles, it saves all 300 µs."""
    resumed = "train.py(7): torch_dynamo_resume_in_forward_at_9"
    check_rule("recompilation", {
        "one step compiles again": training(TORCH, (3,)),
        "one step compiles again in Paddle": training(PADDLE, (3,)),
        "each step compiles": training(TORCH, (0, 1, 2, 3, 4)),
        "each step compiles in Paddle": training(PADDLE, (0, 1, 2, 3, 4)),
        "no step compiles": training(TORCH, ()),
        "the first step compiles": training(PADDLE, (0,)),
        "a region of compiled code": training("Torch-Compiled Region: 0/1", (3,)),
        "a lookup of compiled code": training("get_interpretercore_cache", (3,), "operator_detail"),
        "a Python function in a file with such a name": training("torch/_compile.py(42): inner", (3,), "python"),
        "a name that only contains the word": training("decompile", (3,)),
        "steps 2 to 4 compile operators": training("aclopCompileAndExecute", (2, 3, 4), "runtime"),
        "step 3 compiles operators, 60 of 1000 µs": training("aclopCompileAndExecute", (3,), "runtime"),
        "step 1 compiles operators, which may be the first time": training("aclopCompile", (1,), "runtime"),
        "functions after a graph break": training(resumed, (1, 2, 3, 4), "python"),
        "without steps": trace([host(TORCH, "operator", 0, 10)]),
    })  # fmt: skip


def test_torch_compiles_again_for_another_shape(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    from torch.profiler import ProfilerActivity, profile, schedule

    def model(x):  # type: ignore[no-untyped-def]
        return (torch.relu(x @ x.T) * 2).sum()

    compiled = torch.compile(model, backend="eager", dynamic=False)
    path = tmp_path / "trace.json"
    plan = schedule(wait=0, warmup=1, active=4, repeat=1)
    save = lambda found: found.export_chrome_trace(str(path))  # noqa: E731
    with profile(activities=[ProfilerActivity.CPU], on_trace_ready=save, schedule=plan, acc_events=True) as running:
        for size in (4, 4, 4, 5, 4):
            compiled(torch.randn(size, 8))
            running.step()
    torch._dynamo.reset()
    [again] = compiled_again(RuleInput(load(path)))
    assert again.evidence["steps"] == [3]  # the fourth call has another size; the first call was not recorded


def test_paddle_compiles_again_for_another_shape(tmp_path: Path) -> None:
    paddle = pytest.importorskip("paddle")
    from paddle.profiler import Profiler, ProfilerTarget

    run_in_one_thread(paddle)

    def model(x):  # type: ignore[no-untyped-def]
        return (paddle.nn.functional.relu(x) * 2).sum()

    compiled = paddle.jit.to_static(model, full_graph=True)
    running = Profiler(targets=[ProfilerTarget.CPU], scheduler=(1, 5), on_trace_ready=lambda _: None)
    running.start()
    for size in (4, 4, 4, 5, 4):
        compiled(paddle.ones([size, 8]))
        running.step()
    running.stop()
    path = tmp_path / "trace.json"
    running.export(str(path), "json")
    del running
    [again] = compiled_again(RuleInput(load(path)))
    assert again.evidence["steps"] == [3]
