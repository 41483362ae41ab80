"""Rule 35: compilation during training, in synthetic traces and in recordings of both frameworks. Times are in µs."""

from __future__ import annotations

from pathlib import Path

import pytest

from perfkit_core.advice.predict import predict
from perfkit_core.advice.rule_input import NotEvaluableError, RuleInput
from perfkit_core.advice.rules.recompilation import find as compiled_again
from perfkit_core.readers.load import load
from perfkit_core.trace.model.trace import Trace
from tests.support.events import host, trace
from tests.support.paddle_executor import run_in_one_thread

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


@pytest.mark.parametrize("name", [TORCH, PADDLE])
def test_one_step_compiles_again(name: str) -> None:
    facts = RuleInput(training(name, (3,)))
    [found] = compiled_again(facts)
    assert (found.evidence["steps"], found.evidence["compiles"]) == ([3], 1)
    assert (found.evidence["compile_ns"], found.evidence["longer_ns"]) == (300 * US, 300 * US)
    prediction = predict(facts, found)  # the median step does not change
    assert (prediction.method, prediction.p50_ns) == ("none", None)


@pytest.mark.parametrize("name", [TORCH, PADDLE])
def test_each_step_compiles_again(name: str) -> None:
    facts = RuleInput(training(name, (0, 1, 2, 3, 4)))
    [found] = compiled_again(facts)
    assert found.evidence["steps"] == [1, 2, 3, 4]
    prediction = predict(facts, found)
    assert (prediction.base_ns, prediction.p50_ns, prediction.method) == (1300 * US, 1000 * US, "replay")
    assert found.ceiling_ns == 240 * US  # four compilations of 300 µs in five steps
    assert (prediction.naive_ns, prediction.ceiling_ns) == (1060 * US, 300 * US)  # the median step saves all 300 µs


@pytest.mark.parametrize(
    ("name", "kind", "steps"),
    [
        (TORCH, "operator", ()),
        (PADDLE, "operator", (0,)),
        ("Torch-Compiled Region: 0/1", "operator", (3,)),
        ("get_interpretercore_cache", "operator_detail", (3,)),
        ("torch/_compile.py(42): inner", "python", (3,)),
        ("decompile", "operator", (3,)),
    ],
)
def test_nothing_compiles_again(name: str, kind: str, steps: tuple[int, ...]) -> None:
    """The cases are no compilation, compilation in the first step, events of compiled code, and other words."""
    assert compiled_again(RuleInput(training(name, steps, kind))) == []


def test_functions_after_a_graph_break() -> None:
    [found] = compiled_again(
        RuleInput(training("train.py(7): torch_dynamo_resume_in_forward_at_9", (1, 2, 3, 4), "python"))
    )
    assert found.evidence["breaks_per_step"] == 8 / 5
    assert found.method == "none"


def test_steps_are_needed() -> None:
    with pytest.raises(NotEvaluableError, match="no steps were recorded"):
        compiled_again(RuleInput(trace([host(TORCH, "operator", 0, 10)])))


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
