"""Roles of arguments against Paddle's definitions of its operators, and FLOPs of old static programs by hand."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from perfkit_core.plugins.contracts import ViewRequest
from perfkit_core.plugins.flops.registry import UNUSED, read_formulas
from perfkit_core.readers.load import load
from perfkit_core.views.devices import roofline
from perfkit_core.views.merging import table_of
from perfkit_core.views.operators.operator_work import operator_work
from perfkit_paddle.operator_names import NAMESPACE, operator_formula

FORMULAS = read_formulas("perfkit_paddle")
ROLES = {
    "a": ["x", "input"],
    "b": ["y", "w", "vec"],
    "input": ["x", "logits", "out_grad"],
    "weight": ["filter", "scale", "w"],
    "bias": ["input", "bias"],
    "gradient": ["out_grad", "y_grad", "output_grad"],
    "first": ["x"],
    "second": ["y"],
    "query": ["q"],
    "key": ["k"],
    "value": ["v"],
    "query_starts": ["cu_seqlens_q"],
    "key_starts": ["cu_seqlens_k"],
    "query_length": ["max_seqlen_q"],
    "key_length": ["max_seqlen_k"],
    "transpose_a": ["transpose_x", "trans_x"],
    "transpose_b": ["transpose_y", "trans_y"],
    "weights": ["weight_list"],
    "sizes": ["out", "output"],
    "inference": ["is_test"],
    "adaptive": ["adaptive", "global_pooling"],
    "window": ["kernel_size"],
    "dims": ["axis"],
    "dim": ["axis"],
    "output": ["out"],
    "target": ["label"],
    "table": ["weight", "x"],
    "indices": ["index", "x", "mask"],
    "bidirectional": ["is_bidirec"],
    "gate": ["y"],
    "rows": ["weight_grad"],
    "parameters": ["param", "params"],
    "gradients": ["grad", "grads"],
}
"""Role of a formula → names of the argument in Paddle's definitions, if they differ."""
PLACED = {"tensors", "inputs", "states", "wanted"}
"""Roles of several arguments with different names."""


def in_programs() -> dict[str, list[str]]:
    """Return the names of inputs, results and attributes of operators in the programs of other tests, from Paddle."""
    import paddle

    from tests.support.static_programs import CASES

    paddle.enable_static()
    try:
        program = paddle.static.Program()
        with paddle.static.program_guard(program, paddle.static.Program()):
            x = paddle.static.data("x", [4, 6], "float32")
            layer = paddle.nn.Linear(6, 8)
            fused = paddle.incubate.nn.functional.fused_linear(x, layer.weight, layer.bias)
            paddle.optimizer.SGD(0.1).minimize(fused.mean())
        programs = [program, *(case.build(False)[0] for case in CASES.values())]
    finally:
        paddle.disable_static()
    return {
        operator.name().rstrip("_"): [
            *operator.get_input_names(), *operator.get_output_names(), *operator.get_attr_names()
        ]
        for each in programs
        for operator in each.global_block().ops
        if operator.name().rstrip("_") in FORMULAS
    }  # fmt: skip


def in_headers() -> dict[str, list[str]]:
    """Return the same names of all operators that Paddle generates, from the headers in Paddle's wheel. They include
    operators that a build for CPUs lacks."""
    import paddle

    header = Path(paddle.__file__).parent / "include/paddle/fluid/pir/dialect/operator/ir/pd_op.h"
    if not header.exists():
        pytest.skip("this wheel of Paddle has no headers")
    found = {}
    for text in re.split(r"\nclass ", header.read_text())[1:]:
        name = re.search(r'return "(pd_op\.\w+)"', text)
        build = re.search(r"static void Build\((.*?)\);", text, re.DOTALL)
        if name is None or build is None or "OpYamlInfoInterface" not in text:
            continue
        inputs = re.findall(r"pir::Value (\w+)\(\) \{ return operand_source\(", text)
        results = re.findall(r"(\w+)\(\) \{ return result\(", text)
        parameters = re.findall(r"(\w+)\s*(?:=[^,]*)?(?:,|$)", re.sub(r"\{.*?\}", "", build[1]))
        attributes = [each for each in parameters[2:] if each.removesuffix("_") not in inputs and each not in inputs]
        found[name[1].rstrip("_")] = [*inputs, *results, *attributes]
    return found


@pytest.fixture(scope="session")
def definitions() -> dict[str, list[str]]:
    pytest.importorskip("paddle")
    return in_headers() | in_programs()


@pytest.mark.filterwarnings("ignore")
def test_headers_and_programs_have_the_same_order() -> None:
    pytest.importorskip("paddle")
    headers, programs = in_headers(), in_programs()
    both = [name for name in programs if name in headers]
    assert len(both) > 25
    for name in both:
        assert programs[name] == headers[name], name


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("operator", [name for name in FORMULAS if name.startswith(NAMESPACE)])
def test_roles_are_those_of_paddles_definitions(operator: str, definitions: dict[str, list[str]]) -> None:
    names = definitions[operator]
    pairs = list(zip(FORMULAS[operator].roles, names, strict=False))
    assert len(pairs) == len(FORMULAS[operator].roles)
    for role, name in pairs:
        if role == "wanted":
            assert name.endswith("_grad")
        elif role not in PLACED | {UNUSED}:
            assert name in (role, *ROLES.get(role, ())), (role, names)


def test_paddle_names_of_variants() -> None:
    assert operator_formula("pd_op.adam_") == operator_formula("pd_op.adam") != operator_formula("adam")
    assert operator_formula("matmul dygraph") is None


@pytest.mark.parametrize("file", ["static_2.6.2_pir0_nofeed.pb", "static_3.3.1_pir0_nofeed.pb"])
def test_products_of_an_old_static_program(file: str, paddle_traces: Path) -> None:
    """Two steps of two layers, with 8 samples and 16, 32 and 10 features. Old programs do not record which gradients
    they compute."""
    trace = load(paddle_traces / "versions" / file)
    table = table_of(roofline.GEMM_VIEW, trace, ViewRequest())
    assert sorted(zip(table["m"], table["n"], table["k"], table["calls"], strict=True)) == [
        (8, 10, 32, 2),
        (8, 32, 16, 2),
    ]
    assert sorted(table["flops"]) == [2 * 2 * 8 * 32 * 10, 2 * 2 * 8 * 16 * 32]
    work = operator_work(trace)
    names = trace.codes("name")
    flops: Counter[str] = Counter()
    for row, number in zip(work.row.tolist(), work.distinct.tolist(), strict=True):
        flops[names.values[names.codes[row]]] += work.works[number].flops
    parameters = 16 * 32 + 32 + 32 * 10 + 10
    assert flops["sgd"] == 2 * 2 * parameters
    assert flops["relu"] == flops["relu_grad"] == 2 * 8 * 32
    assert flops["elementwise_add"] == 2 * 8 * (32 + 10)
    assert "mul_grad" not in flops
