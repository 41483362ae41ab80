"""Generated kernels are matched with the operators of the other run that they were made of."""

from __future__ import annotations

from perfkit_core.base.language.messages import render
from perfkit_core.compare.align.align import align
from perfkit_core.compare.explanation import fused_operators
from perfkit_core.trace.model.trace import Trace
from perfkit_torch.operator_names import operator_name
from tests.support.events import host, trace


def run(*operators: tuple[str, int], phase: str = "forward") -> Trace:
    """Return a torch trace of one step. The operators (name, duration in ns) follow each other."""
    rows, now = [], 0
    for name, dur in operators:
        rows.append(host(name, "operator", now, dur, phase=phase))
        now += dur
    return trace([*rows, host("step 0", "step", 0, now, step=0)], names=operator_name).with_meta(framework="torch")


EAGER = run(("aten::add", 10), ("aten::mul", 20), ("aten::native_layer_norm", 40), ("aten::mul", 25), ("aten::mm", 70),
            ("aten::tanh", 5))  # fmt: skip
FUSED = run(("triton_poi_fused_add_mul_0", 12), ("triton_per_fused_mul_native_layer_norm_1", 18), ("aten::mm", 71),
            ("triton_poi_fused_tanh_2", 4))  # fmt: skip
GROUP = "add + layer_norm + multiply"


def test_kernels_match_the_operators_that_they_were_made_of() -> None:
    """Both kernels contain a multiplication, so they are one group. A kernel of one operator needs no group."""
    rows = align(EAGER, FUSED).rows
    columns = ["level", "operator", "base_calls", "other_calls", "base_cpu_ns", "other_cpu_ns"]
    assert sorted(rows[columns].itertuples(index=False, name=None)) == [
        ("operator", GROUP, 4, 2, 95, 30),
        ("operator", "matmul", 1, 1, 70, 71),
        ("operator", "tanh", 1, 1, 5, 4),
    ]
    (sentence,) = fused_operators(align(EAGER, FUSED))
    assert render(sentence) == (
        f"A compiler fused these operators in one of the runs: {GROUP} (forward). Calls: 4 in base (95 ns), 2 in other "
        "(30 ns)."
    )


def test_the_order_of_the_runs_does_not_matter() -> None:
    (row,) = align(FUSED, EAGER).rows.query("operator == @GROUP").to_dict("records")
    assert (row["base_calls"], row["other_calls"], row["base_cpu_ns"], row["other_cpu_ns"]) == (2, 4, 30, 95)


def test_a_gradient_without_a_kernel_of_its_own_is_in_the_group() -> None:
    """The gradient of a product is a product, and Inductor names it so."""
    base = run(("autograd::engine::evaluate_function: MulBackward0", 30), ("aten::sum", 10), phase="backward")
    other = run(("triton_per_fused_mul_sum_0", 15), phase="backward")
    (row,) = align(base, other).rows.to_dict("records")
    assert (row["operator"], row["base_calls"], row["base_cpu_ns"], row["other_cpu_ns"]) == (
        "multiply + sum",
        2,
        40,
        15,
    )


def test_two_compiled_runs_are_matched_by_their_kernels() -> None:
    rows = align(FUSED, FUSED).rows
    assert GROUP not in set(rows["operator"])
    assert (rows["base_cpu_ns"] == rows["other_cpu_ns"]).all()
