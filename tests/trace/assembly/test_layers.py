"""The layer of each event, computed by hand, from labels and from calls that the framework recorded itself."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfkit_core.pages.architecture import PrintedArchitecture
from perfkit_core.trace.assembly.labels import backward_label, module_label, parse_module_label
from perfkit_core.trace.model.architecture import Layer, Parameter, from_meta, path_parents, to_extra
from perfkit_core.trace.model.meta import TraceMeta
from tests.support.events import device, host, trace
from tests.support.tables import check_events

NET, FIRST, SECOND = module_label("", "Net"), module_label("first", "Linear"), module_label("block.second", "Conv")
NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)


@given(NAMES, NAMES, st.lists(NAMES.filter(bool), max_size=4))
def test_a_label_contains_what_was_put_into_it(path: str, class_name: str, nodes: list[str]) -> None:
    assert parse_module_label(module_label(path, class_name)) == (path, class_name, False, ())
    found = parse_module_label(backward_label(path, class_name, nodes))
    assert found is not None
    assert (found.path, found.class_name, found.backward) == (path, class_name, True)
    assert sorted(found.nodes) == sorted(nodes)


@given(NAMES, NAMES)
def test_a_label_survives_every_trace_file(path: str, class_name: str) -> None:
    """Labels contain no quotes, no backslashes and only ASCII, as torch and Paddle write names without escaping
    them."""
    name = backward_label(path, class_name, ["Node"])
    assert name.isascii()
    assert not set('"\\\n\t ') & set(name)


@pytest.mark.parametrize("name", ["aten::mm", "perfkit.module", "perfkit", ""])
def test_other_names_are_no_labels(name: str) -> None:
    assert parse_module_label(name) is None


def forward(sequence: bool = True) -> list[dict[str, object]]:
    """Return a model of two layers and an operator outside the layers, and a loss outside the model."""
    number = (lambda value: {"sequence": value}) if sequence else (lambda value: {})
    return [
        host(NET, "annotation", 0, 100, phase="forward"),
        host("own", "operator", 1, 5, **number(1)),
        host(FIRST, "annotation", 10, 30, phase="forward"),
        host("mm", "operator", 12, 20, **number(2)),
        host("launch", "runtime", 14, 2, correlation=1),
        host(SECOND, "annotation", 50, 40, phase="forward"),
        host("conv", "operator", 52, 20, **number(3)),
        host("loss", "operator", 120, 10, **number(4)),
        device("kernel", "kernel", 60, 10, correlation=1),
        device("lost", "kernel", 80, 10, correlation=99),
    ]


def backward(*nodes: tuple[str, str | None]) -> list[dict[str, object]]:
    """Return a backward span of nodes without sequence numbers, of 10 ns each. Marks lie inside their nodes."""
    rows = [host("Backward", "backward", 1000, 10 * len(nodes), phase="backward")]
    for place, (name, mark) in enumerate(nodes):
        start = 1000 + 10 * place
        rows.append(host(f"Global_{name}", "operator", start, 10, args=f'{{"at": {place}}}'))
        if mark:
            rows.append(host(mark, "annotation", start + 2, 1))
    return rows


def test_the_layers_of_events() -> None:
    """Host events take the nearest call, kernels that of their launch. A node of the backward pass belongs to the last
    operator with its sequence number before the node: ``view`` only precedes ``conv``."""
    view = host("view", "operator", 5, 1, sequence=3)
    engine = [
        host("LossBackward", "operator", 200, 10, sequence=4, phase="backward"),
        host("engine", "operator", 220, 20, phase="backward"),
        host("ConvBackward", "operator", 222, 10, sequence=3, phase="backward"),
        host("inside", "operator", 223, 5),
        host("Accumulate", "operator", 245, 5, phase="backward"),
        host("MmBackward", "operator", 260, 10, sequence=2, phase="backward"),
        host("OwnBackward", "operator", 280, 10, sequence=1, phase="backward"),
        host("other thread", "operator", 290, 10, tid=2, phase="backward"),
    ]
    cases = {
        "the forward pass, and backward nodes by their sequence numbers": [*forward(), view, *engine],
        "a mark takes precedence over a sequence number": [
            *forward(), engine[2],
            host(backward_label("first", "Linear"), "annotation", 223, 1),
            host(backward_label("", "Net"), "annotation", 225, 1),
        ],
        "a call inside a backward pass, which recomputes activations, is a call like any other": [
            *forward(), *backward(("Checkpoint", backward_label("first", "Linear"))),
            host(SECOND, "annotation", 1004, 5), host("again", "operator", 1005, 2),
        ],
        "calls that a framework recorded form paths": [
            host("Net", "forward", 0, 100, phase="forward", layer="Net_0"),
            host("frame", "python", 5, 90),
            host("Linear", "forward", 10, 20, phase="forward", layer="Linear_0"),
            host("mm", "operator", 12, 5),
            host("outside", "operator", 200, 5),
        ],
        "a numbered layer that is called again keeps its path": [
            host("Net", "forward", 0, 100, phase="forward", layer="Net_0"),
            host("block", "forward", 10, 50, phase="forward", layer="Block_1"),
            host("linear", "forward", 20, 20, phase="forward", layer="Linear_1"),
            host("again", "forward", 200, 50, phase="forward", layer="Block_1"),
            host("linear again", "forward", 210, 20, phase="forward", layer="Linear_1"),
            host("class only", "forward", 300, 50, phase="forward", layer="Loss"),
        ],
        "labels replace recorded calls": [
            host(NET, "annotation", 0, 100), host("Net", "forward", 1, 90, layer="Net"), host("mm", "operator", 5, 5),
        ],
        "without both, there are no layers": [host("mm", "operator", 5, 5)],
    }  # fmt: skip
    traces = {name: trace(rows) for name, rows in cases.items()}
    check_events("trace/layers.txt", traces, "module", "no-steps no-device-events no-phases")


def in_turn(rows: list[dict[str, object]]) -> list[str | None]:
    """Return the layers of the nodes in the backward span, in the order of time."""
    found = trace([*forward(sequence=False), *rows])
    names, modules = found.events["name"].to_pylist(), found.events["module"].to_pylist()
    return [module for name, module in zip(names, modules, strict=True) if name.startswith("Global_")]


def test_nodes_listed_by_a_mark_belong_to_it_in_any_branch_order() -> None:
    """Two branches run breadth first. A node that no mark lists belongs to the call that has waited longest."""
    first = backward_label("first", "Linear", ["Add", "Matmul"])
    second = backward_label("block.second", "Conv", ["Add", "Matmul"])
    nodes = [("Mean", None), ("Add", first), ("Add", second), ("Matmul", None), ("Matmul", None), ("Other", None)]
    assert in_turn(backward(*nodes)) == [None, "first", "block.second", "first", "block.second", "block.second"]


def test_of_nested_calls_that_begin_together_the_inner_has_it() -> None:
    inner, outer = backward_label("first", "Linear", ["Add", "Matmul"]), backward_label("", "Net", ["Matmul"])
    rows = backward(("Add", inner), ("Matmul", None), ("Matmul", None))
    rows.append(host(outer, "annotation", 1004, 1))
    assert in_turn(rows) == ["first", "first", "Net"]


def test_a_mark_ends_with_its_backward_pass() -> None:
    rows = backward(("Add", backward_label("first", "Linear", ["Add", "Matmul"])))
    later = [{**row, "start_ns": int(str(row["start_ns"])) + 5000} for row in backward(("Matmul", None))]
    assert in_turn([*rows, *later]) == ["first", None]


def test_paths_continue_the_longest_other_path() -> None:
    paths = ["", "a", "a.0", "a.0.b.c", "gan.", "gan.a", "ab"]
    assert path_parents(paths).tolist() == [-1, 0, 1, 2, -1, 4, 0]


def model() -> PrintedArchitecture:
    weight = Parameter(name="weight", shape=(4, 3), dtype="float32", bytes=48)
    tied = Parameter(name="weight", shape=(4, 3), dtype="float32", bytes=48, tied_to="first.weight")
    lazy = Parameter(name="weight", shape=None, dtype="float32", bytes=None)
    return PrintedArchitecture("Net", "fw", (
        Layer(path="", class_name="Net"),
        Layer(path="first", class_name="Linear", parameters=(weight,), calls=2, flops=100, backward_flops=200),
        Layer(path="second", class_name="Linear", parameters=(tied,), calls=1, flops=None),
        Layer(path="lazy", class_name="Lazy", parameters=(lazy,)),
    ))  # fmt: skip


def test_tied_parameters_count_once_and_unknown_ones_not_at_all() -> None:
    table = model().to_pandas().set_index("module")
    assert table["parameters"].dropna().to_dict() == {"first": 12, "second": 0}
    assert table["self_parameters"].dropna().to_dict() == {"Net": 0, "first": 12, "second": 0}
    known = PrintedArchitecture("Net", "fw", model().layers[:3]).to_pandas().set_index("module")
    assert known.loc["Net", "parameters"] == 12
    assert known.loc["Net", "parameters_ratio"] == known.loc["first", "self_parameters_ratio"] == 1
    assert known.loc["Net", "self_parameters_ratio"] == 0
    assert table.loc["second", "tied"] == "weight = first.weight"
    assert (table.loc["Net", "flops"], table.loc["first", "self_flops"]) == (100, 100)
    assert table["flops"].isna().to_dict() == {"Net": False, "first": False, "second": True, "lazy": True}


def test_an_architecture_survives_the_metadata_of_a_run() -> None:
    meta = TraceMeta(source="", format="", extra=to_extra([model()]))
    (kept,) = from_meta(meta)
    assert (kept.name, kept.framework, kept.layers) == ("Net", "fw", model().layers)
    assert from_meta(TraceMeta(source="", format="", extra={"modules": "of another tool"})) == ()


def test_an_architecture_prints_a_tree() -> None:
    text = str(model())
    assert "Architecture of Net" in text
    assert "\n  first " in text
    assert "1 tied tensor is counted once" in text
