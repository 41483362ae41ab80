"""Events of compiled kernels get the calls of the code, in order. All expected values follow from small traces."""

from __future__ import annotations

from typing import Any

import pytest

from perfkit_core.trace.assembly.kernel_calls import origins, with_graphs
from perfkit_core.trace.model.compiled_graph import CompiledGraph, KernelCall, common_parent, common_stack
from perfkit_core.trace.model.trace import Trace
from tests.support.events import device, host, trace


def call(event: str, module: str = "", *stacks: str, fused: bool = True) -> KernelCall:
    return KernelCall(event, event, fused, ("fw::add",), (module,), stacks)


FIRST, SECOND = call("k0", "a.x", "m.py(1): f"), call("k0", "a.y", "m.py(2): f")
PRODUCT = call("fw::mm", "a", "m.py(3): f", fused=False)
GRAPH = CompiledGraph((FIRST, PRODUCT, SECOND), "run one")


def run(name: str, start: int, *events: str) -> list[dict[str, Any]]:
    inside = [host(event, "operator", start + 10 * (number + 1), 5) for number, event in enumerate(events)]
    return [host(name, "annotation", start, 1000), *inside]


def cells(found: Trace, column: str) -> list[str | None]:
    codes = found.codes(column)
    return [None if code < 0 else codes.values[code] for code in codes.codes]


def test_the_nth_event_is_the_nth_call() -> None:
    found = with_graphs(trace([*run("run one", 0, "k0", "fw::mm", "k0"), *run("other", 2000, "fw::mm")]), [GRAPH])
    assert cells(found, "module") == [None, "a/x", "a", "a/y", None, None]
    assert cells(found, "stack") == [None, "m.py(1): f", "m.py(3): f", "m.py(2): f", None, None]
    assert origins(found).call_rows.tolist() == [1, 2, 3]


def test_another_number_of_events_gets_all_calls() -> None:
    found = with_graphs(trace(run("run one", 0, "k0", "k0", "k0")), [GRAPH])
    assert cells(found, "module") == [None, "a", "a", "a"]
    assert cells(found, "stack")[1] == "m.py(1): f", "the first line of the function in which the lines are"


def test_a_graph_without_an_event_is_known_by_its_kernels() -> None:
    """Only one graph calls k0 and then k1. Both graphs call k0, with different layers, so a run of k0 alone gets what
    they agree on: the operators."""
    graphs = [CompiledGraph((FIRST, call("k1", "b"))), CompiledGraph((call("k1", "c"), SECOND))]
    found = with_graphs(trace([*run("region", 0, "k0", "k1"), *run("region", 2000, "k0")]), graphs)
    assert cells(found, "module") == [None, "a/x", "b", None, None]
    calls = origins(found)
    assert [calls.calls[calls.call[row]].operators for row in (1, 4)] == [("fw::add",)] * 2
    assert calls.calls[calls.call[4]].modules == ()


def test_an_operator_inside_another_operator_is_no_call() -> None:
    rows = [
        host("run one", "annotation", 0, 1000),
        host("fw::linear", "operator", 10, 100),
        host("fw::mm", "operator", 20, 50),
    ]
    assert cells(with_graphs(trace(rows), [GRAPH]), "module") == [None, None, None]


@pytest.mark.parametrize("replayed", [False, True])
def test_device_work_belongs_to_the_call_that_launched_it(replayed: bool) -> None:
    """A replay of a device graph has one launch for all kernels, and no host event for each kernel."""
    rows = [host("run one", "annotation", 0, 1000)]
    for number, start in enumerate((100, 200)):
        if not replayed:
            rows.append(host("k0", "operator", start, 50))
            rows.append(host("launch", "runtime", start + 1, 5, correlation=number + 1))
        rows.append(device("k0", "kernel", start + 300, 40, 1 if replayed else number + 1))
    if replayed:
        rows.append(host("graph launch", "runtime", 50, 5, correlation=1))
    found = with_graphs(trace(rows), [GRAPH])
    kernels = found.rows("kind", "kernel")
    assert [layer for layer, one in zip(cells(found, "module"), kernels, strict=True) if one] == ["a/x", "a/y"]


def test_frames_that_were_recorded_as_events_keep_their_stacks() -> None:
    rows = [host("main.py(1): main", "python", 0, 5000), *run("run one", 10, "k0", "fw::mm", "k0")]
    found = with_graphs(trace(rows), [GRAPH])
    assert set(cells(found, "stack")) == {None}
    assert cells(found, "module")[2] == "a/x"


def test_layers_of_a_labelled_model_have_their_labels() -> None:
    """``annotate`` labelled the module ``encoder``, which was compiled, and the layer encoder.a.x in another run."""
    label = "perfkit.module:{}:Layer"
    rows = [host(label.format("encoder"), "annotation", 0, 3000), *run("run one", 10, "k0", "fw::mm", "k0"),
            host(label.format("encoder.a.x"), "annotation", 4000, 10)]  # fmt: skip
    found = with_graphs(trace(rows), [GRAPH])
    assert cells(found, "module")[2:5] == ["encoder.a.x", "encoder", "encoder"]


def test_common_layers_and_stacks() -> None:
    assert common_parent(["blocks.0.up", "blocks.0.norm"]) == "blocks.0"
    assert common_parent(["blocks.1", "blocks.10"]) == "blocks"
    assert common_parent(["a", ""]) is None
    assert common_parent([]) is None
    assert common_stack(["m.py(9): f;m.py(1): g", "m.py(8): f;m.py(1): g"]) == "m.py(8): f;m.py(1): g"
    assert common_stack(["m.py(9): f;m.py(1): g", "n.py(8): h;m.py(1): g"]) == "m.py(1): g"
    assert common_stack(["m.py(9): f", "n.py(8): h"]) is None
