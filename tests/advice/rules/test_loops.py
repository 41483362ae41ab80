"""Rule 19: loops that select a part of a tensor in each iteration. The outcomes are in
``tests/golden/advice/rules``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from perfkit_core.advice.predict import predict
from perfkit_core.advice.rule_input import RuleInput
from perfkit_core.advice.rules.select_loop import find as select_loops
from perfkit_core.advice.rules.select_loop import find_rounds
from perfkit_core.readers.load import load
from perfkit_core.trace.model.trace import Trace
from tests.support.advised import BOTH, Rows, call, found, kernel, op, steps
from tests.support.frameworks import FRAMEWORKS
from tests.support.rule_cases import Cases, check_rule

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


def test_select_loop() -> None:
    """5, 20 or 35% of the 300 µs of both passes stay."""

    def cases(framework: str) -> Cases:
        def case(count: int, **options: Any) -> Trace:
            return steps(loop(framework, count, **options), 1500, framework=framework)

        broken = loop(framework, 12)
        broken[11]["name"] = "something else"
        select, work, gradient = WORDS[framework]
        names = ((select, 0, 5), (select, 5, 5), (work, 10, 15))
        two = [op(name, 30 * i + at, dur) for i in range(10) for name, at, dur in names]
        linked = [row | {"sequence": at} for at, row in enumerate(loop(framework, 10, backward=False))]
        numbers = [*(row["sequence"] for row in linked if row["name"] == select), 999]
        gradients = [op(gradient, 1000 + 20 * i, 20) | {"phase": "backward", "sequence": n}
                     for i, n in enumerate(numbers)]  # fmt: skip
        selections = [row | {"phase": "backward"} for row in loop(framework, 12, backward=False)]
        return {
            "ten iterations": case(10),
            "nine iterations": case(9),
            "ten iterations, with 11 as the threshold": (case(10), {"loop_selects": 11}),
            "five iterations, another one, and six iterations": steps(broken, 1500, framework=framework),
            "22 other operators in each iteration": case(12, others=22),
            "23 other operators in each iteration are layers": case(12, others=23),
            "two selections in each iteration": steps(two, 1000, framework=framework),
            "selections in the backward pass": steps(selections, 1500, framework=framework),
            "gradients of the selections, and of another one": steps([*linked, *gradients], 1500, framework=framework),
        }

    check_rule("select-loop", cases)


@BOTH
@pytest.mark.parametrize("at_once", [False, True])
def test_a_loop_in_a_recorded_training(framework: str, at_once: bool, tmp_path: Path) -> None:
    native = FRAMEWORKS[framework]()
    nn, schedule = native.module.nn, native.schedule(wait=0, warmup=1, active=2, repeat=1)
    cell, inputs = nn.Linear(8, 8), native.module.randn([4, 20, 8])
    if framework == "torch":
        inputs.requires_grad_()
    else:
        inputs.stop_gradient = False
    with native.profiler(schedule, on_trace_ready=native.trace_handler(tmp_path)) as profiler:
        for _ in range(3):
            hidden, parts = native.module.zeros([4, 8]), native.module.unbind(inputs, 1) if at_once else None
            for i in range(20):
                hidden = native.module.tanh(cell(hidden) + (inputs[:, i] if parts is None else parts[i]))
            hidden.sum().backward()
            profiler.step()
    candidates = found(select_loops, load(tmp_path))
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
