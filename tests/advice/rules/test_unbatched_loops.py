"""Rule 37: loops that call small operators for one item after the other."""

from __future__ import annotations

import pytest

from perfkit_core.advice.loops import forward_loops, outermost_loops
from perfkit_core.advice.rules.unbatched_loop import find as loops
from tests.support.advised import BOTH, Rows, call, found, kernel, op, predicted, steps

WORDS = {
    "torch": ("aten::index", "aten::mean", "aten::linear", "autograd::engine::evaluate_function: MeanBackward0",
              "torch::autograd::AccumulateGrad"),
    "paddle": ("gather dygraph", "mean dygraph", "linear dygraph", "Global_MeanGradNode", "GradNodeAccumulation"),
}  # fmt: skip


def items(framework: str, count: int, body: int = 2) -> Rows:
    """Return ``count`` rounds of a lookup and of means, 10 µs each."""
    lookup, mean, *_ = WORDS[framework]
    names = [lookup] + [mean] * (body - 1)
    return [op(names[at % body], 10 * at, 10) for at in range(count * body)]


@BOTH
def test_a_loop_over_items(framework: str) -> None:
    recording = steps(items(framework, 6), 200, framework=framework)
    (one,) = found(loops, recording)
    assert (one.evidence["rounds"], one.evidence["operators_per_round"]) == (6, 2)
    assert (one.evidence["loops_per_step"], one.evidence["loop_ns"]) == (1, 120_000)
    # all operators take as long as a call, so 2 of 12 calls remain
    assert predicted(recording, one) == pytest.approx((100_000,) * 3, abs=12)  # times of operators are rounded


@BOTH
def test_three_rounds_are_no_loop(framework: str) -> None:
    assert found(loops, steps(items(framework, 3), 200, framework=framework)) == []
    assert found(loops, steps(items(framework, 6), 200, framework=framework), loop_rounds=7) == []


@BOTH
def test_a_loop_that_takes_little_time_does_not_count(framework: str) -> None:
    assert found(loops, steps(items(framework, 5), 2_000, framework=framework)) == []
    assert len(found(loops, steps(items(framework, 5), 1_999, framework=framework))) == 1


def test_the_work_of_long_operators_remains() -> None:
    """Operators of 10 and 90 µs: a call takes up to 20 µs, and at worst all the rest remains."""
    rows = [op(name, 100 * at + start, dur) for at in range(4)
            for name, start, dur in (("aten::index", 0, 10), ("aten::mean", 10, 90))]  # fmt: skip
    recording = steps(rows, 500)
    (one,) = found(loops, recording)
    low, mid, high = predicted(recording, one)
    # calls take 120 of 400 µs, and 2 of 8 calls remain; a tenth, three tenths or eight tenths of the work remain
    assert (low, mid, high) == pytest.approx((158_000, 214_000, 354_000), abs=12)


def test_operators_that_are_long_already_take_as_long_in_one_call() -> None:
    rows = [op(name, 410 * at + start, dur) for at in range(4)
            for name, start, dur in (("aten::index", 0, 10), ("aten::mean", 10, 400))]  # fmt: skip
    recording = steps(rows, 2_000)
    (one,) = found(loops, recording)
    # calls take 120 of 1,640 µs, and 2 of 8 calls remain; so do 0.7, 1 and 1.1 times the work of 380 µs in each round
    saved = [90_000 - (factor - 1) * 1_520_000 for factor in (0.7, 1, 1.1)]
    assert predicted(recording, one) == pytest.approx([2_000_000 - ns for ns in saved], abs=12)


def test_a_recurrent_layer_also_computes_one_time_step_after_the_other() -> None:
    """A cell of two gates in a loop over four time steps, of 100 µs for each operator."""
    body = ("slice dygraph", "matmul dygraph", "sigmoid dygraph", "sigmoid dygraph", "tanh dygraph")
    rows = [op(name, 500 * at + 100 * number, 100) for at in range(4) for number, name in enumerate(body)]
    recording = steps(rows, 2_500, framework="paddle")
    (one,) = found(loops, recording)
    calls, work = 20 * 20_000, 20 * 80_000
    expected = [2_500_000 - calls * 15 / 20 - work * (1 - factor) for factor in (0.4, 0.7, 1.2)]
    assert predicted(recording, one) == pytest.approx(expected, abs=100)


def test_the_time_between_operators_counts() -> None:
    rows = [op(("aten::index", "aten::mean")[at % 2], 20 * at, 10) for at in range(12)]
    recording = steps(rows, 300)
    (one,) = found(loops, recording)
    assert one.evidence["loop_ns"] == 120_000 + 110_000
    # 110 µs of gaps within the loop become a sixth, and so do the calls
    assert predicted(recording, one)[1] == pytest.approx(300_000 - 100_000 - 110_000 * 5 / 6, abs=12)


def test_the_backward_pass_is_batched_too() -> None:
    forward = [row | {"sequence": at} for at, row in enumerate(items("torch", 5))]
    gradient = [op(WORDS["torch"][3], 100 + 10 * at, 10) | {"phase": "backward", "sequence": at} for at in range(10)]
    (one,) = found(loops, steps([*forward, *gradient], 300))
    assert one.evidence["loop_ns"] == 200_000
    other = [row | {"phase": "backward"} for row in items("paddle", 4)]  # no sequence numbers
    behind = [row | {"start_ns": row["start_ns"] + 100_000} for row in other]
    (one,) = found(loops, steps([*items("paddle", 5), *behind], 300, framework="paddle"))
    assert one.evidence["loop_ns"] == 180_000  # one round less, because ends differ


def test_one_backward_pass_runs_the_rounds_of_all_loops() -> None:
    """Two loops of five rounds, and no sequence numbers: ten rounds follow each other in the backward pass."""
    forward = [*items("paddle", 5), op("stack dygraph", 100, 10)]
    forward += [row | {"start_ns": row["start_ns"] + 110_000} for row in items("paddle", 5)]
    behind = [op("Global_MeanGradNode", 300 + 10 * at, 10) | {"phase": "backward"} for at in range(10)]
    (one,) = found(loops, steps([*forward, *behind], 500, framework="paddle"))
    assert one.evidence["loop_ns"] == 300_000


@BOTH
def test_a_loop_and_the_same_loop_in_another_loop_are_one_problem(framework: str) -> None:
    """A loop over tags runs once, and then in each of four time steps."""
    lookup, mean, linear, *_ = WORDS[framework]
    names = [lookup, mean] * 5 + ([linear] + [lookup, mean] * 5) * 4
    recording = steps([op(name, 10 * at, 10) for at, name in enumerate(names)], 700, framework=framework)
    (one,) = found(loops, recording)
    assert (one.evidence["rounds"], one.evidence["operators_per_round"]) == (5, 2)
    assert one.evidence["loops_per_step"] == 5


@BOTH
def test_loops_in_a_loop_may_have_different_numbers_of_rounds(framework: str) -> None:
    lookup, mean, *_ = WORDS[framework]
    names = [name for count in (4, 6, 5, 4) for name in (lookup, *[mean] * count)]
    recording = steps([op(name, 10 * at, 10) for at, name in enumerate(names)], 300, framework=framework)
    loop, *inner = outermost_loops(forward_loops(recording)), forward_loops(recording)
    assert [(one.rounds, one.body, one.operators) for one in loop[:1]] == [(4, 2, 23)]
    assert len(inner[0]) > len(loop)
    (one,) = found(loops, recording)
    assert one.evidence["rounds"] == 4


def test_a_loop_in_layers_is_found() -> None:
    """Four heads in each of four layers. A head takes 16 features and returns 4. A layer takes and returns 16."""
    _, mean, linear, *_ = WORDS["torch"]
    names: list[tuple[str, list[list[int]]]] = []
    for _ in range(4):
        names += [(linear, [[8, 16], [4, 16]]), (mean, [[8, 4]])] * 4
        names += [("aten::cat", [[8, 4]]), (linear, [[8, 16], [16, 16]]), ("aten::relu", [[8, 16]])]
    rows = [op(name, 10 * at, 10, shapes) for at, (name, shapes) in enumerate(names)]
    rows += [op(WORDS["torch"][4], 500 + at, 1) | {"phase": "backward"} for at in range(20)]
    (one,) = found(loops, steps(rows, 600))
    assert (one.evidence["rounds"], one.evidence["loops_per_step"]) == (4, 4)


def network(framework: str, taken: int, out: int, gradients: int) -> Rows:
    """Return six rounds of a layer and a mean, and ``gradients`` gradients of parameters."""
    _, mean, linear, _, accumulate = WORDS[framework]
    rows = []
    for at in range(6):
        rows += [op(linear, 20 * at, 10, [[8, taken], [out, taken], [out]]), op(mean, 20 * at + 10, 10, [[8, out]])]
    return rows + [op(accumulate, 130 + at, 1) | {"phase": "backward"} for at in range(gradients)]


@BOTH
def test_layers_are_no_loop(framework: str) -> None:
    assert found(loops, steps(network(framework, 16, 16, 12), 200, framework=framework)) == []
    assert found(loops, steps(network(framework, 16, 16, 0), 200, framework=framework)) == []


@BOTH
def test_layers_that_begin_in_another_layer_are_no_loop(framework: str) -> None:
    """The first of six blocks takes 8 features and returns 16, as the others do."""
    rows = network(framework, 16, 16, 12)
    rows[0] = op(WORDS[framework][2], 0, 10, [[8, 8], [16, 8], [16]])
    assert found(loops, steps(rows, 200, framework=framework)) == []


def test_copies_of_gradients_on_another_thread_are_no_loop() -> None:
    """Those are made by DistributedDataParallel, on the thread of the backward pass."""
    rows = [row | {"tid": 2} for row in items("torch", 6)]
    assert found(loops, steps(rows, 200)) == []


@BOTH
def test_rounds_that_share_parameters_are_no_layers(framework: str) -> None:
    (one,) = found(loops, steps(network(framework, 16, 16, 1), 200, framework=framework))
    assert one.evidence["rounds"] == 6


@pytest.mark.parametrize(("gradients", "count"), [(6, 0), (1, 1), (0, 1)])
def test_tables_of_their_own_are_no_loop(gradients: int, count: int) -> None:
    """One large table instead of six has as many gradients to fill and to apply."""
    rows = []
    for at in range(6):
        rows += [op("aten::select", 20 * at, 10), op("aten::embedding", 20 * at + 10, 10, [[50, 8], [16]])]
    rows += [op(WORDS["torch"][4], 130 + at, 1) | {"phase": "backward"} for at in range(gradients)]
    assert len(found(loops, steps(rows, 200))) == count


@BOTH
def test_rounds_that_cannot_follow_each_other_are_no_layers(framework: str) -> None:
    """A head of attention takes 16 features and returns 4, so the next round does not take its result."""
    assert len(found(loops, steps(network(framework, 16, 4, 12), 200, framework=framework))) == 1


@BOTH
def test_updates_are_no_loop(framework: str) -> None:
    rows = [row | {"phase": "optimizer"} for row in items(framework, 6)]
    assert found(loops, steps(rows, 200, framework=framework)) == []


def test_kernels_of_a_loop_become_fewer() -> None:
    rows: Rows = []
    for at in range(8):
        rows += [op("aten::index", 20 * at, 10), call("cudaLaunchKernel", 20 * at + 2, 2, at)]
        rows += [kernel("gather", 20 * at + 10, 10, at)]
    recording = steps(rows, 200)
    (one,) = found(loops, recording)
    assert predicted(recording, one)[1] < 120_000
