"""Rule 37: loops that call small operators for one item after the other. The outcomes are in
``tests/golden/advice/rules``."""

from __future__ import annotations

from perfkit_core.advice.loops import forward_loops, outermost_loops
from perfkit_core.advice.rules.unbatched_loop import find
from perfkit_core.trace.model.trace import Trace
from tests.support.advised import BOTH, Rows, call, found, kernel, op, steps
from tests.support.rule_cases import Cases, check_rule

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


def in_turn(names: list[str], every: int = 10, dur: int = 10) -> Rows:
    return [op(name, every * at, dur) for at, name in enumerate(names)]


def later(rows: Rows, us: int) -> Rows:
    return [row | {"start_ns": row["start_ns"] + 1000 * us} for row in rows]


def test_loops_over_items() -> None:
    """All operators take as long as a call, so 2 of 12 calls remain in the first case."""

    def cases(framework: str) -> Cases:
        lookup, mean, linear, *_ = WORDS[framework]

        def case(rows: Rows, dur: int = 200) -> Trace:
            return steps(rows, dur, framework=framework)

        nested = [lookup, mean] * 5 + ([linear] + [lookup, mean] * 5) * 4
        uneven = [name for count in (4, 6, 5, 4) for name in (lookup, *[mean] * count)]
        return {
            "six rounds of two operators": case(items(framework, 6)),
            "six rounds, with seven as the threshold": (case(items(framework, 6)), {"loop_rounds": 7}),
            "three rounds": case(items(framework, 3)),
            "100 of 2000 µs": case(items(framework, 5), 2_000),
            "100 of 1999 µs": case(items(framework, 5), 1_999),
            "a loop that runs once, and in each of four other rounds": case(in_turn(nested), 700),
            "loops with different numbers of rounds in a loop": case(in_turn(uneven), 300),
            "updates": case([row | {"phase": "optimizer"} for row in items(framework, 6)]),
            "another thread, where DistributedDataParallel copies gradients": case(
                [row | {"tid": 2} for row in items(framework, 6)]
            ),
        }

    check_rule("unbatched-loop", cases)


def test_the_work_of_a_loop() -> None:
    """A call takes up to 20 µs. In the second case, calls take 120 of 400 µs, and 2 of 8 calls remain; a tenth, three
    tenths or eight tenths of the work remain. Operators of 400 µs already take as long in one call: 0.7, 1 and 1.1
    times the work of 380 µs in each round remain. Gaps in a loop become as many as its calls."""

    def rounds(long: int, every: int) -> Rows:
        parts = ((WORDS["torch"][0], 0, 10), (WORDS["torch"][1], 10, long))
        return [op(name, every * at + start, dur) for at in range(4) for name, start, dur in parts]

    cell = ["slice dygraph", "matmul dygraph", "sigmoid dygraph", "sigmoid dygraph", "tanh dygraph"]
    forward = [row | {"sequence": at} for at, row in enumerate(items("torch", 5))]
    backward = [op(WORDS["torch"][3], 100 + 10 * at, 10) | {"phase": "backward", "sequence": at} for at in range(10)]
    gradients = ["Global_GatherGradNode", "Global_MeanGradNode"]
    layers = ["Global_AddGradNode", "Global_Conv2dGradNodeFinal"]
    unlinked, others = (
        [row | {"phase": "backward"} for row in later(in_turn(names * 5), 100)] for names in (gradients, layers)
    )
    two_loops = [*items("paddle", 5), op("stack dygraph", 100, 10), *later(items("paddle", 5), 110)]
    two_loops += [op("Global_MeanGradNode", 300 + 10 * at, 10) | {"phase": "backward"} for at in range(10)]
    kernels: Rows = []
    for at in range(8):
        kernels += [op("aten::index", 20 * at, 10), call("cudaLaunchKernel", 20 * at + 2, 2, at)]
        kernels += [kernel("gather", 20 * at + 10, 10, at)]
    check_rule("unbatched-loop", {
        "operators of 10 and 90 µs": steps(rounds(90, 100), 500),
        "operators of 10 and 400 µs": steps(rounds(400, 410), 2_000),
        "a cell of two gates over four time steps": steps(in_turn(cell * 4, 100, 100), 2_500, framework="paddle"),
        "110 µs of gaps between operators": steps(in_turn(["aten::index", "aten::mean"] * 6, 20), 300),
        "the backward pass is batched too": steps([*forward, *backward], 300),
        "without sequence numbers, the names of gradients tell": steps(
            [*items("paddle", 5), *unlinked], 300, framework="paddle"),
        "gradients of as many layers": steps([*items("paddle", 5), *others], 300, framework="paddle"),
        "one backward pass runs the rounds of two loops": steps(two_loops, 500, framework="paddle"),
        "kernels of a loop become fewer": steps(kernels, 200),
    }, "-work")  # fmt: skip


def test_what_the_rounds_compute() -> None:
    """Rounds that change one tensor after the other have a remedy of their own. Rounds that make tensors from Python
    lists compute nothing, and the time in which a list is read is no cost of calling."""
    made = ["aten::empty", "aten::to", "aten::lift_fresh", "aten::detach_"]
    check_rule("unbatched-loop", {
        "a moving average of parameters, with state_dict() in each round": steps(
            in_turn([*["aten::detach"] * 3, "aten::mul_", "aten::add_"] * 6), 500),
        "sums in place over rows": steps(in_turn(["aten::select", "aten::add_"] * 6), 300),
        "tensors from lists": steps(in_turn(made * 6, 20), 600),
        "scaled tensors from lists": steps(in_turn([*made, "aten::div"] * 6, 20), 700),
    }, "-rounds")  # fmt: skip


def test_gradients_of_biases_belong_to_the_loop() -> None:
    """Paddle adds up the gradients of all biases after those of all activations. The same operators run once elsewhere,
    so only the number of rounds shows whose gradients these are."""
    forward = in_turn(["slice dygraph", "matmul dygraph", "add dygraph", "relu dygraph"] * 5)
    other = in_turn(["matmul dygraph", "add dygraph"])
    names = ["Global_ReluGradNode"] * 5 + ["Global_AddGradNode", "Global_MatmulGradNode"] * 5
    backward = [row | {"phase": "backward"} for row in in_turn(names)]
    recording = steps([*forward, *later(other, 210), *later(backward, 240)], 400, framework="paddle")
    (candidate,) = found(find, recording)
    assert candidate.evidence["calls_per_step"] == 20 + 15


@BOTH
def test_the_outermost_loop_of_a_loop_in_a_loop(framework: str) -> None:
    lookup, mean, *_ = WORDS[framework]
    names = [name for count in (4, 6, 5, 4) for name in (lookup, *[mean] * count)]
    recording = steps(in_turn(names), 300, framework=framework)
    loop, *inner = outermost_loops(forward_loops(recording)), forward_loops(recording)
    assert [(one.rounds, one.body, one.operators) for one in loop[:1]] == [(4, 2, 23)]
    assert len(inner[0]) > len(loop)


def network(framework: str, taken: int, out: int, gradients: int) -> Rows:
    """Return six rounds of a layer and a mean, and ``gradients`` gradients of parameters."""
    _, mean, linear, _, accumulate = WORDS[framework]
    rows = []
    for at in range(6):
        rows += [op(linear, 20 * at, 10, [[8, taken], [out, taken], [out]]), op(mean, 20 * at + 10, 10, [[8, out]])]
    return rows + [op(accumulate, 130 + at, 1) | {"phase": "backward"} for at in range(gradients)]


def heads() -> Trace:
    """Return four heads in each of four layers. A head takes 16 features and returns 4. A layer takes and returns
    16."""
    _, mean, linear, *_ = WORDS["torch"]
    names: list[tuple[str, list[list[int]]]] = []
    for _ in range(4):
        names += [(linear, [[8, 16], [4, 16]]), (mean, [[8, 4]])] * 4
        names += [("aten::cat", [[8, 4]]), (linear, [[8, 16], [16, 16]]), ("aten::relu", [[8, 16]])]
    rows = [op(name, 10 * at, 10, shapes) for at, (name, shapes) in enumerate(names)]
    rows += [op(WORDS["torch"][4], 500 + at, 1) | {"phase": "backward"} for at in range(20)]
    return steps(rows, 600)


def tables(gradients: int) -> Trace:
    """Return lookups in six tables. One large table instead has as many gradients to fill and to apply."""
    rows = []
    for at in range(6):
        rows += [op("aten::select", 20 * at, 10), op("aten::embedding", 20 * at + 10, 10, [[50, 8], [16]])]
    rows += [op(WORDS["torch"][4], 130 + at, 1) | {"phase": "backward"} for at in range(gradients)]
    return steps(rows, 200)


def test_layers_are_no_loop() -> None:
    def cases(framework: str) -> Cases:
        def case(taken: int, out: int, gradients: int) -> Trace:
            return steps(network(framework, taken, out, gradients), 200, framework=framework)

        other = network(framework, 16, 16, 12)
        other[0] = op(WORDS[framework][2], 0, 10, [[8, 8], [16, 8], [16]])
        return {
            "layers with parameters of their own": case(16, 16, 12),
            "layers without gradients": case(16, 16, 0),
            "the first layer takes other features": steps(other, 200, framework=framework),
            "rounds that share their parameters": case(16, 16, 1),
            "rounds that do not take the result of the round before": case(16, 4, 12),
            "heads in layers": heads(),
            "tables with gradients of their own": tables(6),
            "tables that share their gradient": tables(1),
            "tables without gradients": tables(0),
        }

    check_rule("unbatched-loop", cases, "-layers")
