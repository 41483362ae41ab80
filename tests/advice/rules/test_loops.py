"""Rule 19: loops that select a part of a tensor in each iteration."""

from __future__ import annotations

from pathlib import Path

import pytest

from perfkit_core.advice.predict import predict
from perfkit_core.advice.rule_input import RuleInput
from perfkit_core.advice.rules.select_loop import find as select_loops
from perfkit_core.advice.rules.select_loop import find_rounds
from perfkit_core.readers.load import load
from perfkit_core.trace.model.trace import Trace
from tests.support.advised import BOTH, Rows, call, found, kernel, op, predicted, steps

WORDS = {
    "torch": ("aten::select", "aten::tanh", "autograd::engine::evaluate_function: SelectBackward0"),
    "paddle": ("slice dygraph", "tanh dygraph", "Global_SliceGradNode"),
}


def loop(framework: str, count: int, backward: bool = True, others: int = 0) -> Rows:
    """Return ``count`` iterations with a selection of 10 µs, a tanh of 20 µs and ``others`` operators of 1 µs. With
    ``backward``, the backward pass of each selection takes 20 µs."""
    select, work, gradient = WORDS[framework]
    every = 30 + others
    rows: Rows = []
    for i in range(count):
        rows += [op(select, every * i, 10), op(work, every * i + 10, 20)]
        rows += [op(work, every * i + 30 + at, 1) for at in range(others)]
    if backward:
        rows += [op(gradient, 1000 + 20 * i, 20) | {"phase": "backward"} for i in range(count)]
    return rows


@BOTH
def test_ten_iterations(framework: str) -> None:
    recording = steps(loop(framework, 10), 1500, framework=framework)
    (one,) = found(select_loops, recording)
    assert (one.evidence["rounds"], one.evidence["loops"]) == (10, 3)  # one loop in each of three steps
    assert one.ceiling_ns == 300_000
    # 5, 20 or 35 % of the 300 µs of both passes stay
    assert predicted(recording, one) == (1_215_000, 1_260_000, 1_305_000)


@BOTH
def test_nine_iterations_do_not_count(framework: str) -> None:
    assert found(select_loops, steps(loop(framework, 9), 1500, framework=framework)) == []
    assert found(select_loops, steps(loop(framework, 10), 1500, framework=framework), loop_selects=11) == []


@BOTH
def test_different_iterations_do_not_count(framework: str) -> None:
    rows = loop(framework, 12)
    rows[11]["name"] = "something else"  # in the sixth iteration: five iterations are before it, six after it
    assert found(select_loops, steps(rows, 1500, framework=framework)) == []


@BOTH
def test_layers_are_no_iterations(framework: str) -> None:
    assert found(select_loops, steps(loop(framework, 12, others=23), 1500, framework=framework)) == []
    assert len(found(select_loops, steps(loop(framework, 12, others=22), 1500, framework=framework))) == 1


def test_two_selections_per_iteration() -> None:
    rows: Rows = []
    for i in range(10):
        rows += [op("aten::slice", 30 * i, 5), op("aten::select", 30 * i + 5, 5), op("aten::tanh", 30 * i + 10, 15)]
    recording = steps(rows, 1000)
    (one,) = found(select_loops, recording)
    assert (one.evidence["rounds"], one.evidence["selections"]) == (10, 60)
    assert predicted(recording, one)[1] == 1_000_000 - 80_000


def test_selections_in_the_loader_or_backward_are_no_loop() -> None:
    rows = [row | {"phase": "backward"} for row in loop("torch", 12, backward=False)]
    assert found(select_loops, steps(rows, 1500)) == []


def test_gradients_go_with_their_own_selections() -> None:
    rows = [row | {"sequence": at} for at, row in enumerate(loop("torch", 10, backward=False))]
    select, _, gradient = WORDS["torch"]
    selections = [row["sequence"] for row in rows if row["name"] == select]
    rows += [op(gradient, 1000 + 20 * i, 20) | {"phase": "backward", "sequence": n} for i, n in enumerate(selections)]
    rows += [op(gradient, 1300, 20) | {"phase": "backward", "sequence": 999}]
    (one,) = found(select_loops, steps(rows, 1500))
    assert one.evidence["backward_selections"] == 30  # without the gradient of another selection


def recorded_torch(folder: Path, at_once: bool) -> Trace:
    import torch

    from perfkit_torch import trace_handler

    handler = trace_handler(folder)
    cell, inputs = torch.nn.Linear(8, 8), torch.randn(4, 20, 8, requires_grad=True)
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU],
        schedule=torch.profiler.schedule(wait=0, warmup=1, active=2, repeat=1),
        on_trace_ready=handler,
    ) as profiler:
        for _ in range(3):
            hidden, parts = torch.zeros(4, 8), inputs.unbind(1) if at_once else None
            for i in range(20):
                hidden = torch.tanh(cell(hidden) + (inputs[:, i] if parts is None else parts[i]))
            hidden.sum().backward()
            profiler.step()
    handler.flush()
    return load(folder)


@pytest.mark.parametrize("at_once", [False, True])
def test_what_torch_records(tmp_path: Path, at_once: bool) -> None:
    candidates = found(select_loops, recorded_torch(tmp_path, at_once))
    told = [(one.evidence["rounds"], one.evidence["loops"], one.evidence["backward_selections"]) for one in candidates]
    assert told == ([] if at_once else [(20, 2, 40)])


def recorded_paddle(folder: Path, at_once: bool) -> Trace:
    paddle = pytest.importorskip("paddle")
    from perfkit_paddle import trace_handler

    handler = trace_handler(folder)
    cell, inputs = paddle.nn.Linear(8, 8), paddle.randn([4, 20, 8])
    inputs.stop_gradient = False
    profiler = paddle.profiler.Profiler(
        targets=[paddle.profiler.ProfilerTarget.CPU], scheduler=(1, 3), on_trace_ready=handler
    )
    profiler.start()
    for _ in range(4):
        hidden, parts = paddle.zeros([4, 8]), paddle.unbind(inputs, 1) if at_once else None
        for i in range(20):
            hidden = paddle.tanh(cell(hidden) + (inputs[:, i] if parts is None else parts[i]))
        hidden.sum().backward()
        profiler.step()
    profiler.stop()
    handler.flush()
    return load(folder)


@pytest.mark.parametrize("at_once", [False, True])
def test_what_paddle_records(tmp_path: Path, at_once: bool) -> None:
    candidates = found(select_loops, recorded_paddle(tmp_path, at_once))
    told = [(one.evidence["rounds"], one.evidence["loops"], one.evidence["backward_selections"]) for one in candidates]
    assert told == ([] if at_once else [(20, 2, 40)])


def test_embedding_tables_one_after_the_other(traces: Path) -> None:
    facts = RuleInput(load(traces / "torch" / "dlrm-8xv100" / "rank2.json"))
    (one,) = select_loops(facts)
    assert one.evidence["rounds"] == 26  # DLRM's Criteo data has 26 tables
    assert len(find_rounds(facts.trace, 27).rows) == 0


@BOTH
def test_the_ceiling_includes_work_that_waits_for_the_selections(framework: str) -> None:
    """Each selection of 10 µs launches a kernel of 30 µs. Without selections and kernels, the step is more than 100 µs
    shorter."""
    select, work, _ = WORDS[framework]
    rows: Rows = []
    for i in range(10):
        rows += [op(select, 20 * i, 10), call("cudaLaunchKernel", 20 * i + 2, 5, i + 1), op(work, 20 * i + 10, 10)]
        rows += [kernel("gather", 40 + 30 * i, 30, i + 1)]
    rows += [call("cudaDeviceSynchronize", 200, 140, kind="sync")]
    recording = steps(rows, 400, framework=framework)
    (one,) = found(select_loops, recording)
    prediction = predict(RuleInput(recording), one)
    assert prediction.saving_ns is not None
    assert prediction.saving_ns > 100_000  # the host time of the selections
    assert prediction.ceiling_ns is not None
    assert prediction.ceiling_ns >= prediction.saving_ns
