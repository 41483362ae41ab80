"""Recordings whose FLOPs, bytes and limits can be computed by hand. See ``tests/reports/test_hardware_numbers.py``."""

from __future__ import annotations

from typing import Any, Final

from tests.data.reports.formats import Content, chrome
from tests.data.reports.training import Call, call, spans


def inputs(dims: list[Any], types: list[str] | str = "float", concrete: list[str] | None = None) -> dict[str, Any]:
    """Return the arguments of an operator with ``record_shapes=True``. A shape of [] is a scalar, unless its type is
    given. One type is that of all tensors."""
    if isinstance(types, str):
        types = [types if shape else "Scalar" for shape in dims]
    return {"Input Dims": dims, "Input type": types, "Concrete Inputs": concrete or [""] * len(dims)}


def recorded(*calls: Call) -> dict[str, Any]:
    """Return a recording of operators on a CPU, with ids in the order of their starts."""
    events = [
        event | {"args": {"External id": 1 + number, **event["args"], "Ev Idx": number}}
        for number, event in enumerate(spans(calls, 1000.0))
    ]
    return chrome(events, deviceProperties=[], record_shapes=1)


def operator(
    name: str,
    dims: list[Any],
    *inside: Call,
    types: list[str] | str = "float",
    concrete: list[str] | None = None,
    **more: Any,
) -> Call:
    """Return an operator with shapes."""
    return call(name, *inside, **inputs(dims, types, concrete), **more)


def vmap() -> dict[str, Any]:
    """Return ``torch.vmap(torch.mm)`` of 3 × 4 × 5 and 3 × 5 × 2: ``aten::mm`` has the shapes that the function sees,
    ``aten::bmm`` inside those that are computed."""
    logical, physical = [[4, 5], [5, 2]], [[3, 4, 5], [3, 5, 2]]
    work = operator("aten::matmul", physical, operator("aten::matmul", physical, operator("aten::bmm", physical)))
    product = operator("aten::mm", logical, work)
    return recorded(operator("aten::matmul", logical, operator("aten::matmul", logical, product)))


def backward(node: str, *inside: Call, elements: int = 1000, sequence: int = 2) -> Call:
    """Return a node of the backward pass that calls operators."""
    args = inputs([[elements]]) | {"Sequence number": sequence, "Fwd thread id": 0}
    return call(
        f"autograd::engine::evaluate_function: {node}", call(node, *inside, **args), **{"Sequence number": sequence}
    )


def accumulate(elements: int = 1000) -> Call:
    """Return the node that adds a gradient."""
    return backward(
        "torch::autograd::AccumulateGrad", operator("aten::add_", [[elements], [elements], []]), elements=elements
    )


PAIR: Final = [[1000], [1000]]
ALONE: Final = [[1000]]
ARGMAX: Final = operator(
    "aten::argmax",
    [[4, 6], [], []],
    operator("aten::as_strided", [[4], [], [], []], types=["long int", "ScalarList", "ScalarList", ""]),
    concrete=["", "1", "False"],
)
RNN: Final = ["", "", "", "", "", "", "", "False", "[]", "2", "7", "1", "True", "False", "False", "True"]


def rnn_layer(dims: list[Any], dtype: str = "float", hidden: int = 7) -> Call:
    """Return a layer of an LSTM in inference on a CPU: input, three weights and biases, two states."""
    types = [dtype] * 7 + ["Scalar", "ScalarList", *["Scalar"] * 7]
    concrete = [*RNN[:10], str(hidden), *RNN[11:]]
    return operator("aten::mkldnn_rnn_layer", [*dims, *[[]] * 9], types=types, concrete=concrete)


def addbmm() -> Call:
    """Return ``aten::addbmm``, which multiplies its batches one after the other."""
    inside = [operator("aten::addmm_", [[4, 6], [4, 5], [5, 6], [], []], concrete=["", "", "", "1", "1"])] * 3
    return operator(
        "aten::addbmm",
        [[4, 6], [3, 4, 5], [3, 5, 6], [], []],
        operator("aten::copy_", [[4, 6], [4, 6], []]),
        *inside,
        concrete=["", "", "", "1", "1"],
    )


SCALED: Final = ["", "", "", "1", "1"]
CALLS: Final[dict[str, Call]] = {
    "glu": operator("aten::glu", [[4, 10], []], concrete=["", "-1"]),
    "glu_first_axis": operator("aten::glu", [[6, 5], []], concrete=["", "0"]),
    "glu_half": operator("aten::glu", [[2, 3, 8], []], types=["c10::BFloat16", "Scalar"], concrete=["", "2"]),
    "addbmm": addbmm(),
    "baddbmm": operator("aten::baddbmm", [[3, 4, 6], [3, 4, 5], [3, 5, 6], [], []], concrete=SCALED),
    "addmv": operator("aten::addmv", [[4], [4, 5], [5], [], []], concrete=SCALED),
    "addr": operator("aten::addr", [[4, 5], [4], [5], [], []], concrete=SCALED),
    "lstm_infer": rnn_layer([[6, 3, 5], [28, 5], [28, 7], [28], [28], [3, 7], [3, 7]]),
    "lstm_wide": rnn_layer([[10, 2, 4], [12, 4], [12, 3], [12], [12], [2, 3], [2, 3]], hidden=3),
    "lstm_half": rnn_layer([[10, 2, 3], [12, 3], [12, 3], [12], [12], [2, 3], [2, 3]], "c10::BFloat16", 3),
    "argmax": ARGMAX,
    "argmin": operator("aten::argmin", [[4, 6], [], []], types=["double", "Scalar", "Scalar"],
                       concrete=["", "0", "False"]),
    "max_indices": operator("aten::max", [[4, 6], [], []], concrete=["", "1", "False"]),
    "topk": operator("aten::topk", [[4, 6], [], [], [], []], concrete=["", "2", "-1", "True", "True"]),
}  # fmt: skip


def recursive() -> dict[str, Any]:
    """Return ``aten::mm`` that reaches ``aten::mm`` of its back end, as MTIA records it, and a deeper case."""
    dims = [[64, 32], [32, 16]]
    inner = call("mtia::dispatch", operator("aten::mm", dims))
    deeper = operator("aten::add", [[8], [8], []], call("other::a", operator("aten::add", [[8], [8], []], call(
        "other::b", operator("aten::add", [[8], [8], []])))))  # fmt: skip
    return recorded(operator("aten::mm", dims, inner), deeper)


FILES: Final[dict[str, Content]] = {
    "vmap.json.gz": vmap,
    "mul_backward.json.gz": lambda: recorded(
        operator("aten::mul", PAIR, **{"Sequence number": 2, "Fwd thread id": 0}),
        backward("MulBackward0", operator("aten::mul", PAIR), operator("aten::mul", PAIR)), accumulate(), accumulate(),
    ),
    "div_backward.json": lambda: recorded(
        operator("aten::div", PAIR, **{"Sequence number": 2, "Fwd thread id": 0}),
        backward("DivBackward0", operator("aten::div", PAIR), operator("aten::neg", ALONE), operator("aten::mul", PAIR),
                 operator("aten::div", PAIR)), accumulate(), accumulate(),
    ),
    "mul_backward_twice.json": lambda: recorded(
        operator("aten::mul", PAIR, **{"Sequence number": 2, "Fwd thread id": 0}),
        backward("MulBackward0", operator("aten::mul", PAIR, **{"Sequence number": 5, "Fwd thread id": 0})),
        backward("MulBackward0", operator("aten::mul", PAIR), operator("aten::mul", PAIR), sequence=5),
    ),
    **{f"{name}.json": (lambda work=work: recorded(work)) for name, work in CALLS.items()},
    "recursive.json": recursive,
}  # fmt: skip
