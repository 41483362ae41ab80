"""Operators that one framework divides and another does not count as one, and nothing else does."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from perfkit_core.compare.align.align import align
from perfkit_core.compare.comparison import compare
from perfkit_core.readers.load import load
from perfkit_core.trace.model.trace import Trace
from tests.support.compared_examples import FRAMEWORKS, MODELS, PLAIN, stored
from tests.support.events import device, host, trace

PROGRAM = Path(__file__).with_name("models.py")
BLOCK = "matmul relu matmul add"
ATTENTION = "matmul attention matmul"
CASES: dict[str, tuple[str, str, dict[str, tuple[int, int]]]] = {
    "of two additions after a product, one is the residual connection": (
        f"{BLOCK} {BLOCK}", "matmul add relu matmul add add matmul add relu matmul add add",
        {"matmul": (4, 4), "add": (2, 2)},
    ),
    "a residual connection after a product without a bias": (BLOCK, BLOCK, {"matmul": (2, 2), "add": (1, 1)}),
    "a reshaped bias": ("conv relu conv", "conv reshape add relu conv reshape add", {"conv": (2, 2), "add": (0, 0)}),
    "a counter of a norm": ("conv add= batch_norm relu", "conv add batch_norm relu", {"conv": (1, 1), "add": (0, 0)}),
    "an addition before a norm": ("relu add batch_norm", "relu add batch_norm", {"add": (1, 1)}),
    "an addition after another operator": ("matmul relu", "matmul relu add", {"matmul": (1, 1), "add": (0, 1)}),
    "attention": (
        ATTENTION, "matmul multiply matmul add softmax dropout matmul transpose matmul",
        {"matmul": (2, 2), "attention": (1, 1), "softmax": (0, 0), "add": (0, 0), "transpose": (0, 1)},
    ),
    "attention in parts in both": ("matmul softmax bmm", "bmm softmax matmul", {"matmul": (2, 2), "softmax": (1, 1)}),
    "attention of both kinds": (
        "attention", "attention matmul softmax matmul", {"attention": (1, 1), "matmul": (0, 2), "softmax": (0, 1)},
    ),
    "a loss": ("log_softmax reshape nll_loss", "cross_entropy mean", {"cross_entropy": (1, 1), "mean": (0, 0)}),
    "a mean that both have": ("cross_entropy mean", "cross_entropy mean", {"cross_entropy": (1, 1), "mean": (1, 1)}),
    "an operator that is unknown": ("matmul odd add", "matmul odd add", {"matmul": (1, 1), "add": (1, 1)}),
}  # fmt: skip


def run(names: str, framework: str, steps: int = 1, suffix: str = "") -> Trace:
    """Return steps of operators, each of 10 ns, which launch nothing. ``add=`` has the number in the graph of gradients
    of the operator after it. With the suffix, the operators are gradients in reverse order."""
    rows, now = [], 0
    for step in range(steps):
        start = now
        for at, name in enumerate(names.split()[::-1] if suffix else names.split()):
            operator = name.rstrip("=")
            number = 100 * step + at + name.endswith("=")
            phase = "backward" if suffix else "forward"
            rows.append(host(operator + suffix, "operator", now, 10, phase=phase, sequence=number))
            now += 10
        rows.append(host(f"step {step}", "step", start, now - start, step=step))
    known = {name: None if name.startswith("odd") else name for name in (row["name"] for row in rows)}
    return trace(rows, names=known.get).with_meta(framework=framework)


@pytest.mark.parametrize("suffix", ["", "_grad"])
@pytest.mark.parametrize("title", CASES)
def test_parts_count_as_one_operator_between_frameworks(title: str, suffix: str) -> None:
    base, other, expected = CASES[title]
    if suffix and "=" in base:  # Counters have no gradient.
        base = base.replace("add= ", "")
    sides = run(base, "fw", 3, suffix), run(other, "another", 3, suffix)
    for first, second in (sides, sides[::-1]):
        operators = compare(first, second).operators.set_index("name")
        for name, counts in expected.items():
            calls = dict.fromkeys(("base_calls", "other_calls"), 0)
            if name + suffix in operators.index:
                calls = operators.loc[name + suffix, [*calls]].to_dict()
            assert tuple(calls.values()) == (counts if first is sides[0] else counts[::-1]), name
        for side, names in (("base", first), ("other", second)):
            assert operators[f"{side}_cpu_ns"].sum() == 10 * names.operators.sum() / 3


def test_an_addition_within_one_framework_is_not_hidden() -> None:
    operators = compare(run("matmul relu", "fw"), run("matmul add relu", "fw")).operators.set_index("name")
    assert operators.loc["add", ["base_calls", "other_calls"]].tolist() == [0, 1]


EMPTY = run("matmul", "fw").slice(0, 0)
NO_STEPS = trace([host("matmul", "operator", 0, 10), host("add", "operator", 10, 10)], names=str)
NO_HOST = trace([device("gemm", "kernel", 0, 10)])


@pytest.mark.parametrize("other", [EMPTY, NO_STEPS, NO_HOST])
@pytest.mark.parametrize("base", [EMPTY, NO_STEPS, NO_HOST, run("matmul add", "fw")])
def test_recordings_without_steps_or_operators_are_compared(base: Trace, other: Trace) -> None:
    compared = compare(base, other.with_meta(framework="another"))
    for side, recorded in (("base", base), ("other", other)):
        operators = recorded.operators & (not compared.per_step)
        assert compared.operators[f"{side}_cpu_ns"].sum() == recorded.ints("dur_ns")[operators].sum()


def test_long_sequences_are_aligned_block_by_block() -> None:
    blocks = 700
    sides = run(" ".join([BLOCK] * blocks), "fw"), run(" ".join(["matmul add relu matmul add add"] * blocks), "another")
    rows = align(*sides).rows.set_index("operator")
    assert rows.loc["add", ["base_calls", "other_calls"]].tolist() == [blocks, blocks]


@pytest.mark.parametrize("model", MODELS)
def test_products_and_additions_of_equal_models_have_counterparts(model: str) -> None:
    operators = compare(*(stored(framework, model, PLAIN) for framework in FRAMEWORKS)).operators.set_index("name")
    for name in ("matmul", "conv", "add", "batch_norm", "layer_norm", "softmax", "cross_entropy"):
        for operator in {name, f"{name}_grad"} & {*operators.index}:
            assert operators.loc[operator, "base_calls"] == operators.loc[operator, "other_calls"], operator


LIVE = {
    "mlp": {"matmul": (9, 9), "add": (4, 4), "add_grad": (4, 4), "cross_entropy": (1, 1)},
    "encoder": {"attention": (3, 3), "attention_grad": (3, 3), "add": (6, 6), "layer_norm": (6, 6), "matmul": (13, 19)},
    "convnet": {"conv": (5, 5), "conv_grad": (5, 5), "add": (2, 2), "add_grad": (2, 2), "batch_norm": (3, 3)},
}
"""The layers of the program's models. An encoder of one framework has one product for queries, keys and values."""


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    for framework in FRAMEWORKS:
        subprocess.run([sys.executable, str(PROGRAM), framework, str(folder / framework)], check=True)
    return folder


@pytest.mark.live
@pytest.mark.slow
@pytest.mark.parametrize("model", LIVE)
def test_models_recorded_in_both_frameworks_have_the_calls_of_their_layers(model: str, models: Path) -> None:
    sides = [load(models / framework / model) for framework in FRAMEWORKS]
    operators = compare(sides[0], sides[1]).operators.set_index("name")
    for name, counts in LIVE[model].items():
        assert tuple(operators.loc[name, ["base_calls", "other_calls"]]) == counts, name
