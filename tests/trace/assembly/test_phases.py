"""The phase of each event, from recorded spans and from sequence numbers."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.events import codes, column, device, host, trace


def test_a_span_gives_its_phase_to_descendants_and_kernels() -> None:
    found = trace(
        [
            host("Forward", "forward", 0, 100, phase="forward"),
            host("op", "operator", 10, 50),
            host("launch", "runtime", 20, 5, correlation=1),
            device("kernel", "kernel", 500, 10, correlation=1),
            host("Optimizer", "optimizer", 200, 50, phase="optimizer"),
            host("outside", "operator", 300, 10),
            host("other thread", "operator", 10, 10, tid=2),
        ]
    )
    phase = column(found, "phase")
    assert [phase[name] for name in ("Forward", "op", "launch", "kernel")] == ["forward"] * 4
    assert phase["Optimizer"] == "optimizer"
    assert phase["outside"] == phase["other thread"] == "other"


def test_of_nested_spans_the_outermost_counts() -> None:
    """A forward span inside a backward span is recomputation, and belongs to backward."""
    found = trace(
        [
            host("Backward", "backward", 0, 100, phase="backward"),
            host("recompute", "forward", 10, 50, phase="forward"),
            host("op", "operator", 20, 5),
        ]
    )
    assert set(column(found, "phase").values()) == {"backward"}


def test_work_of_a_closure_is_no_optimizer_work() -> None:
    """Forward and backward work in the closure keeps its phases. Events after the last backward work are the update."""
    found = trace(
        [
            host("Optimizer.step", "optimizer", 0, 1000, phase="optimizer"),
            host("mm", "operator", 10, 20, sequence=1),
            host("zero_grad", "optimizer", 40, 10, phase="optimizer"),
            host("MmBackward", "operator", 100, 50, sequence=1, phase="backward"),
            host("grad mm", "operator", 110, 20),
            host("clip", "operator", 300, 10),
            host("adam", "operator", 400, 100),
            host("Optimizer.step 2", "optimizer", 2000, 100, phase="optimizer"),
            host("adam 2", "operator", 2010, 50),
        ]
    )
    phase = column(found, "phase")
    assert phase["mm"] == "forward"
    assert phase["MmBackward"] == phase["grad mm"] == "backward"
    assert [phase[name] for name in ("zero_grad", "clip", "adam", "Optimizer.step 2", "adam 2")] == ["optimizer"] * 5
    assert phase["Optimizer.step"] == "other"


def test_backward_of_a_closure_may_run_on_another_thread() -> None:
    """Autograd runs backward work on device threads. An optimizer of another process at the same time is not
    affected."""
    rows = [
        host("Optimizer.step", "optimizer", 0, 1000, phase="optimizer"),
        host("mm", "operator", 10, 20, sequence=1),
        host("MmBackward", "operator", 100, 50, tid=2, sequence=1, phase="backward"),
        host("adam", "operator", 400, 100),
        {**host("other step", "optimizer", 50, 900, phase="optimizer"), "pid": 2},
        {**host("other adam", "operator", 60, 10), "pid": 2},
    ]
    phase = column(trace(rows), "phase")
    assert (phase["mm"], phase["adam"]) == ("forward", "optimizer")
    assert phase["other step"] == phase["other adam"] == "optimizer"


def test_an_optimizer_within_the_backward_pass_belongs_to_it() -> None:
    rows = [
        host("Backward", "backward", 0, 1000, phase="backward"),
        host("Optimizer.step", "optimizer", 100, 500, phase="optimizer"),
        host("AccumulateGrad", "operator", 200, 50, phase="backward"),
    ]
    assert set(column(trace(rows), "phase").values()) == {"backward"}


def test_forward_is_tied_to_backward_by_sequence_numbers() -> None:
    """Operators up to the last operator that is linked to backward are forward. Later operators, such as a printed
    loss, are not."""
    rows = [
        host("input prep", "operator", 0, 5),
        host("mm", "operator", 10, 10, sequence=1),
        host("mm inner", "operator", 12, 2),
        host("relu", "operator", 30, 5, sequence=2),
        host("print", "operator", 50, 5),
        host("ReluBackward", "operator", 100, 10, sequence=2, phase="backward"),
        host("MmBackward", "operator", 120, 10, sequence=1, phase="backward"),
        host("after", "operator", 200, 5),
    ]
    found = trace(rows)
    phase = column(found, "phase")
    assert [phase[name] for name in ("input prep", "mm", "mm inner", "relu")] == ["forward"] * 4
    assert phase["print"] == phase["after"] == "other"
    (finding,) = [finding for finding in found.quality if finding.code == "forward-inferred"]
    assert finding.message.startswith("no forward spans were recorded")


def test_work_after_the_optimizer_is_not_the_next_forward() -> None:
    """The operators after the optimizer have the sequence number of the first node of the next step. They are not
    forward work of that step."""
    rows = [
        host("mm", "operator", 10, 10, sequence=1),
        host("MmBackward", "operator", 30, 10, tid=2, sequence=1, phase="backward"),
        host("Optimizer.step", "optimizer", 50, 10, phase="optimizer"),
        host("metric", "operator", 70, 10, sequence=2),
        host("item", "operator", 82, 5, sequence=2),
        host("scale", "operator", 101, 5, sequence=2),
        host("mm again", "operator", 110, 10, sequence=2),
        host("MmBackward again", "operator", 130, 10, tid=2, sequence=2, phase="backward"),
        host("print", "operator", 150, 5, sequence=3),
    ]
    steps = [host(f"Step#{n}", "step", 100 * n, 100, step=n) for n in range(2)]
    phase = column(trace([*steps, *rows]), "phase")
    assert [phase[name] for name in ("metric", "item", "print")] == ["other"] * 3
    assert [phase[name] for name in ("mm", "scale", "mm again")] == ["forward"] * 3
    assert column(trace(rows), "phase")["metric"] == "forward"


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
            host(f"LossBackward {number}", "operator", at + 400, 50, sequence=node + 1, phase="backward"),
            host(f"ConvBackward {number}", "operator", at + 500, 50, sequence=node, phase="backward"),
            host(f"Optimizer.step {number}", "optimizer", at + 600, 100, phase="optimizer"),
            host(f"item {number}", "operator", at + 800, 50, sequence=node + 10),
        ]
    return rows


def test_a_labelled_layer_is_no_evidence_for_earlier_operators() -> None:
    found = trace(labelled_steps())
    phase = column(found, "phase")
    assert [phase[f"{name} {number}"] for number in (0, 1) for name in ("conv", "loss", "item")] == [
        "forward", "forward", "other",
    ] * 2  # fmt: skip
    (finding,) = [finding for finding in found.quality if finding.code == "forward-inferred"]
    assert finding.message.startswith("outside the labelled layers, forward is")


def test_recomputation_is_no_evidence_for_earlier_operators() -> None:
    """The backward pass recomputes a layer and creates a node. An earlier operator that read the loss has the same
    sequence number."""
    rows = [
        host("mm", "operator", 0, 10, sequence=0),
        host("item", "operator", 20, 10, sequence=1),
        host("CheckpointBackward", "operator", 100, 100, sequence=0, phase="backward"),
        host("layer", "annotation", 110, 20, phase="forward"),
        host("mm again", "operator", 115, 10, sequence=1),
        host("MmBackward", "operator", 150, 10, sequence=1, phase="backward"),
    ]
    phase = column(trace(rows), "phase")
    assert (phase["mm"], phase["item"], phase["mm again"]) == ("forward", "other", "backward")


def test_sequence_numbers_in_an_optimizer_are_ignored() -> None:
    rows = [
        host("mm", "operator", 0, 10, sequence=0),
        host("MmBackward", "operator", 20, 10, sequence=0, phase="backward"),
        host("item", "operator", 40, 10, sequence=1),
        host("Optimizer.step", "optimizer", 60, 20, phase="optimizer"),
        host("adam", "operator", 66, 5, sequence=1),
    ]
    assert column(trace(rows), "phase")["item"] == "other"


def test_evidence_does_not_cross_threads() -> None:
    rows = [
        host("neighbour", "operator", 0, 5, tid=1),
        host("proven", "operator", 0, 5, tid=2, sequence=1),
        host("Backward", "operator", 100, 10, tid=2, sequence=1, phase="backward"),
    ]
    phase = column(trace(rows), "phase")
    assert (phase["proven"], phase["neighbour"]) == ("forward", "other")


def test_evidence_does_not_cross_processes_of_one_thread_number() -> None:
    rows = [
        host("namesake", "operator", 0, 5),
        {**host("proven", "operator", 0, 5, sequence=1), "pid": 2},
        {**host("Backward", "operator", 100, 10, sequence=1, phase="backward"), "pid": 2},
    ]
    phase = column(trace(rows), "phase")
    assert (phase["proven"], phase["namesake"]) == ("forward", "other")


def test_recorded_forward_spans_leave_nothing_to_infer() -> None:
    rows = [
        host("mm", "operator", 0, 5, sequence=1),
        host("Forward", "forward", 10, 5, phase="forward"),
        host("Backward", "operator", 100, 10, sequence=1, phase="backward"),
    ]
    found = trace(rows)
    assert column(found, "phase")["mm"] == "other"
    assert "forward-inferred" not in codes(found)


def test_without_any_phase_all_are_null_and_a_finding_says_so() -> None:
    found = trace([host("op", "operator", 0, 5)])
    assert column(found, "phase") == {"op": None}
    assert "no-phases" in codes(found)


def test_updates_without_a_span_are_the_optimizer() -> None:
    """An optimizer that records no span. With a span, updates outside of it keep their phase."""
    rows = [
        host("Forward", "forward", 0, 100, phase="forward"),
        host("adam_", "operator", 200, 50),
        host("launch", "runtime", 210, 5, correlation=1),
        device("kernel", "kernel", 500, 10, correlation=1),
        host("mm", "operator", 260, 10),
    ]
    names = {"adam_": "optimizer_update", "mm": "matmul"}.get
    phase = column(trace(rows, names=names), "phase")
    assert phase == {"Forward": "forward", "adam_": "optimizer", "launch": "optimizer", "kernel": "optimizer",
                     "mm": "other"}  # fmt: skip
    span = host("step", "optimizer", 300, 50, phase="optimizer")
    assert column(trace([*rows, span], names=names), "phase")["adam_"] == "other"


@pytest.mark.parametrize("name", ["aten::_foreach_mul_", "check_numerics"])
def test_operators_on_lists_in_inference_are_no_update(name: str) -> None:
    """Operators of the family are an update only if gradients were computed, in a recorded phase or by an operator."""
    names = {name: "optimizer_update", "mm": "matmul", "mm_grad": "matmul_grad"}.get
    rows = [host(name, "operator", 100, 50), host("mm", "operator", 10, 10)]
    inference = trace(rows, names=names)
    assert column(inference, "phase") == {name: None, "mm": None}
    assert "no-phases" in codes(inference)
    for backward in (host("Backward", "backward", 50, 10, phase="backward"), host("mm_grad", "operator", 50, 10)):
        assert column(trace([*rows, backward], names=names), "phase")[name] == "optimizer"
