"""The phase of each event, from recorded spans and from sequence numbers."""

from __future__ import annotations

from typing import Any

import pytest

from perfkit_core.trace.model.trace import Trace
from tests.support.events import codes, column, device, host, trace
from tests.support.tables import check_events


def made(*rows: dict[str, Any], names: dict[str, str] | None = None) -> Trace:
    return trace(list(rows), names=names and names.get)


def backward(name: str, start: int, dur: int, sequence: int | None = None, **more: Any) -> dict[str, Any]:
    return host(name, "operator", start, dur, sequence=sequence, phase="backward", **more)


def test_phases_of_recorded_spans() -> None:
    span, update = {"phase": "forward"}, {"phase": "optimizer"}
    names = {"adam_": "optimizer_update", "mm": "matmul"}
    updates = [
        host("Forward", "forward", 0, 100, **span),
        host("adam_", "operator", 200, 50),
        host("launch", "runtime", 210, 5, correlation=1),
        device("kernel", "kernel", 500, 10, correlation=1),
        host("mm", "operator", 260, 10),
    ]
    cases = {
        "a span gives its phase to descendants and kernels": made(
            host("Forward", "forward", 0, 100, **span),
            host("op", "operator", 10, 50),
            host("launch", "runtime", 20, 5, correlation=1),
            device("kernel", "kernel", 500, 10, correlation=1),
            host("Optimizer", "optimizer", 200, 50, **update),
            host("outside", "operator", 300, 10),
            host("other thread", "operator", 10, 10, tid=2),
        ),
        "of nested spans, the outermost counts: a forward span inside a backward span is recomputation": made(
            host("Backward", "backward", 0, 100, phase="backward"),
            host("recompute", "forward", 10, 50, **span),
            host("op", "operator", 20, 5),
        ),
        "forward and backward work in a closure keeps its phases; events after the last backward work are the update":
        made(
            host("Optimizer.step", "optimizer", 0, 1000, **update),
            host("mm", "operator", 10, 20, sequence=1),
            host("zero_grad", "optimizer", 40, 10, **update),
            backward("MmBackward", 100, 50, 1),
            host("grad mm", "operator", 110, 20),
            host("clip", "operator", 300, 10),
            host("adam", "operator", 400, 100),
            host("Optimizer.step 2", "optimizer", 2000, 100, **update),
            host("adam 2", "operator", 2010, 50),
        ),
        "backward of a closure may run on another thread; an optimizer of another process is not affected": made(
            host("Optimizer.step", "optimizer", 0, 1000, **update),
            host("mm", "operator", 10, 20, sequence=1),
            backward("MmBackward", 100, 50, 1, tid=2),
            host("adam", "operator", 400, 100),
            {**host("other step", "optimizer", 50, 900, **update), "pid": 2},
            {**host("other adam", "operator", 60, 10), "pid": 2},
        ),
        "an optimizer within the backward pass belongs to it": made(
            host("Backward", "backward", 0, 1000, phase="backward"),
            host("Optimizer.step", "optimizer", 100, 500, **update),
            backward("AccumulateGrad", 200, 50),
        ),
        "recorded forward spans leave nothing to infer": made(
            host("mm", "operator", 0, 5, sequence=1), host("Forward", "forward", 10, 5, **span),
            backward("Backward", 100, 10, 1),
        ),
        "loading data is a phase": made(
            host("next", "dataloader", 0, 10, phase="dataloader"), host("op", "operator", 20, 5)
        ),
        "without any phase, all are null": made(host("op", "operator", 0, 5)),
        "updates without a span are the optimizer": made(*updates, names=names),
        "with a span, updates outside of it keep their phase":
            made(*updates, host("step", "optimizer", 300, 50, **update), names=names),
    }  # fmt: skip
    check_events("trace/phases.txt", cases, "phase", "no-steps no-device-events")


def labelled_steps() -> list[dict[str, Any]]:
    """Return two steps of a labelled layer, a loss outside the layer, and an operator after the optimizer. The sequence
    number of this operator is also that of the next step's first node."""
    rows = []
    for number in (0, 1):
        at, node = 1000 * number, 10 * number
        rows += [
            host(f"step {number}", "step", at, 1000, step=number),
            host(f"layer {number}", "annotation", at + 100, 100, phase="forward"),
            host(f"conv {number}", "operator", at + 110, 50, sequence=node),
            host(f"loss {number}", "operator", at + 300, 50, sequence=node + 1),
            backward(f"LossBackward {number}", at + 400, 50, node + 1),
            backward(f"ConvBackward {number}", at + 500, 50, node),
            host(f"Optimizer.step {number}", "optimizer", at + 600, 100, phase="optimizer"),
            host(f"item {number}", "operator", at + 800, 50, sequence=node + 10),
        ]
    return rows


def test_phases_from_sequence_numbers() -> None:
    linked = made(
        host("input prep", "operator", 0, 5),
        host("mm", "operator", 10, 10, sequence=1),
        host("mm inner", "operator", 12, 2),
        host("relu", "operator", 30, 5, sequence=2),
        host("print", "operator", 50, 5),
        backward("ReluBackward", 100, 10, 2),
        backward("MmBackward", 120, 10, 1),
        host("after", "operator", 200, 5),
    )
    next_step = [
        host("mm", "operator", 10, 10, sequence=1),
        backward("MmBackward", 30, 10, 1, tid=2),
        host("Optimizer.step", "optimizer", 50, 10, phase="optimizer"),
        host("metric", "operator", 70, 10, sequence=2),
        host("item", "operator", 82, 5, sequence=2),
        host("scale", "operator", 101, 5, sequence=2),
        host("mm again", "operator", 110, 10, sequence=2),
        backward("MmBackward again", 130, 10, 2, tid=2),
        host("print", "operator", 150, 5, sequence=3),
    ]
    steps = [host(f"Step#{n}", "step", 100 * n, 100, step=n) for n in range(2)]
    cases = {
        "operators from the first to the last one that is linked to backward are forward": linked,
        "operators after the optimizer have the number of the next step's first node": made(*steps, *next_step),
        "without steps, too": made(*next_step),
        "a labelled layer is no evidence for earlier operators": trace(labelled_steps()),
        "recomputation of a layer is no evidence for an earlier operator with the same number": made(
            host("mm", "operator", 0, 10, sequence=0),
            host("item", "operator", 20, 10, sequence=1),
            backward("CheckpointBackward", 100, 100, 0),
            host("layer", "annotation", 110, 20, phase="forward"),
            host("mm again", "operator", 115, 10, sequence=1),
            backward("MmBackward", 150, 10, 1),
        ),
        "sequence numbers in an optimizer are ignored": made(
            host("mm", "operator", 0, 10, sequence=0),
            backward("MmBackward", 20, 10, 0),
            host("item", "operator", 40, 10, sequence=1),
            host("Optimizer.step", "optimizer", 60, 20, phase="optimizer"),
            host("adam", "operator", 66, 5, sequence=1),
        ),
        "a frozen layer is forward, a read of a result or a layer without gradients before it is not": made(
            host("evaluate", "operator", 0, 5),
            host("item", "operator", 10, 5, sequence=1),
            host("frozen", "operator", 20, 5, sequence=1),
            host("between", "operator", 30, 5),
            host("mm", "operator", 40, 10, sequence=1),
            backward("MmBackward", 100, 10, 1),
            host("frozen, without backward", "operator", 200, 5, sequence=2),
            names={"evaluate": "linear", "frozen": "conv", "frozen, without backward": "conv", "item": "item"},
        ),
        "evidence does not cross threads": made(
            host("neighbour", "operator", 0, 5, tid=1),
            host("proven", "operator", 0, 5, tid=2, sequence=1),
            backward("Backward", 100, 10, 1, tid=2),
        ),
        "nor processes of one thread number": made(
            host("namesake", "operator", 0, 5),
            {**host("proven", "operator", 0, 5, sequence=1), "pid": 2},
            {**backward("Backward", 100, 10, 1), "pid": 2},
        ),
    }  # fmt: skip
    check_events("trace/inferred_phases.txt", cases, "phase", "no-steps no-device-events")


@pytest.mark.parametrize("name", ["aten::_foreach_mul_", "check_numerics"])
def test_operators_on_lists_in_inference_are_no_update(name: str) -> None:
    """Operators of the family are an update only if gradients were computed, in a recorded phase or by an operator."""
    names = {name: "optimizer_update", "mm": "matmul", "mm_grad": "matmul_grad"}
    rows = [host(name, "operator", 100, 50), host("mm", "operator", 10, 10)]
    inference = made(*rows, names=names)
    assert column(inference, "phase") == {name: None, "mm": None}
    assert "no-phases" in codes(inference)
    for gradient in (host("Backward", "backward", 50, 10, phase="backward"), host("mm_grad", "operator", 50, 10)):
        assert column(made(*rows, gradient, names=names), "phase")[name] == "optimizer"
