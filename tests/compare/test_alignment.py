"""Tests of the alignment: examples with known results, invariants on random traces, and recorded traces."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfkit_core.base.algorithms.arrays import NO_ROW
from perfkit_core.compare.align.align import LEVELS, UNMATCHED, Alignment, align
from perfkit_core.compare.align.layer_match import aligned
from perfkit_core.readers.load import load
from perfkit_core.trace.model.schema import DEVICE_WORK, OPERATOR_KINDS
from perfkit_core.trace.model.trace import Trace
from tests.support.events import device, host, trace

NAMES = {"mm": "matmul", "addmm": "linear", "add": "add", "act": "relu", "gelu": "gelu", "cp": "copy", "sum": "sum",
         "max": "max", "mm_grad": "matmul_grad", "add_grad": "add_grad", "stored": "accumulate_grad"}  # fmt: skip


def run(*ops: tuple[str, str, str | None, int], shapes: bool = False) -> Trace:
    """Return a trace of one step. The operators (name, phase, layer, duration in ns) follow each other."""
    rows, now = [], 0
    for name, phase, layer, dur in ops:
        more = {"shapes": f"[[{dur}]]", "dtypes": '["float"]'} if shapes else {}
        rows.append(host(name, "operator", now, dur, phase=phase, module=layer, **more))
        now += dur
    rows.append(host("step 0", "step", 0, now, step=0))
    return trace(rows, names=NAMES.get)


def levels(found: Alignment) -> list[tuple[Any, ...]]:
    """Return the level, the shared names, and the host times of base and other for each row."""
    keys = ["layer", "operator", "phase", "family"]
    return [
        (
            row["level"],
            *(row[key] for key in keys if isinstance(row[key], str)),
            row["base_cpu_ns"],
            row["other_cpu_ns"],
        )
        for row in found.rows.to_dict("records")
    ]


def test_each_level_leaves_what_it_cannot_match_to_the_next() -> None:
    base = run(
        ("mm", "forward", "net.fc1", 100),
        ("act", "forward", "net.act", 10),  # both runs have the layer, with different operators
        ("cp", "forward", None, 7),
        ("sum", "forward", None, 5),
        ("max", "other", None, 3),
        ("odd", "forward", None, 2),
    )
    other = run(
        ("mm", "forward", "net.fc1", 120),
        ("gelu", "forward", "net.act", 30),
        ("cp", "forward", None, 8),
        ("max", "forward", None, 6),
        ("sum", "backward", None, 4),
        ("strange", "forward", None, 1),
    )
    found = align(base, other)
    assert levels(found) == [
        ("layer", "net.fc1", "matmul", "forward", 100, 120),
        ("layer", "net.act", "forward", "activation", 10, 30),
        ("operator", "copy", "forward", 7, 8),
        ("family_phase", "forward", "reduction", 5, 6),
        ("family", "reduction", 3, 4),
        ("unmatched", "odd", "forward", 2, 0),
        ("unmatched", "strange", "forward", 0, 1),
    ]
    base_share = {level: shares["cpu"] for level, shares in found.matched_share["base"].items()}
    assert base_share == pytest.approx(
        {"layer": 110 / 127, "operator_shape": 110 / 127, "operator": 117 / 127, "family_phase": 122 / 127,
         "family": 125 / 127, "unmatched": 2 / 127}
    )  # fmt: skip
    assert found.matched_share["base"]["unmatched"]["step"] == pytest.approx(2 / 127)
    assert found.matched_share["base"]["layer"]["device"] is None


def test_shapes_tell_calls_apart() -> None:
    base = run(("mm", "forward", None, 10), ("mm", "forward", None, 20), shapes=True)
    other = run(("mm", "forward", None, 20), ("mm", "forward", None, 40), shapes=True)
    assert levels(align(base, other)) == [
        ("operator_shape", "matmul", "forward", 20, 20),
        ("operator", "matmul", "forward", 10, 40),
    ]


def layers_of(*names: str) -> Trace:
    """Return a trace with one call of each layer. ``path=operator`` names the operator in the layer."""
    pairs = [name.partition("=")[::2] for name in names]
    return run(*((op or "mm", "forward", path, 10) for path, op in pairs))


def matched_layers(base: Trace, other: Trace) -> set[str]:
    rows = align(base, other).rows
    return set(rows.loc[rows["level"] == "layer", "layer"])


def test_layers_spelled_differently_match_by_contents_and_order() -> None:
    base = layers_of("layers.0.linear1", "layers.0.act=act", "layers.0.linear2", "layers.1.linear1", "head=sum")
    other = layers_of("layers/0/Linear_1", "layers/0/relu=act", "layers/0/Linear_2", "layers/1/Linear_1", "out=sum")
    assert matched_layers(base, other) == {
        "layers.0.linear1 ~ layers/0/Linear_1",
        "layers.0.act ~ layers/0/relu",
        "layers.0.linear2 ~ layers/0/Linear_2",
        "layers.1.linear1 ~ layers/1/Linear_1",
        "head ~ out",
    }


def test_wrappers_around_a_model_are_ignored() -> None:
    base = layers_of("fc1", "fc2", "norm=sum")
    other = layers_of("module.model.fc1", "module.model.fc2", "module.model.norm=sum")
    assert matched_layers(base, other) == {f"{name} ~ module.model.{name}" for name in ("fc1", "fc2", "norm")}


def test_one_more_layer_stays_alone() -> None:
    base = layers_of("blocks.0.fc", "blocks.1.fc")
    other = layers_of("blocks.0.fc", "blocks.1.fc", "blocks.2.fc")
    found = align(base, other)
    assert set(found.rows["layer"].dropna()) == {"blocks.0.fc", "blocks.1.fc", "blocks.2.fc"}
    alone = found.rows[found.rows["level"] == UNMATCHED]
    assert alone["layer"].tolist() == ["blocks.2.fc"]
    assert alone["other_cpu_ns"].tolist() == [10]


def test_a_bias_matches_the_product_that_includes_it() -> None:
    """The run ``other`` adds a bias after each product, as a separate operator with its own gradient. The run ``base``
    does not."""
    base = run(("mm", "forward", None, 10), ("mm_grad", "backward", None, 20))
    backward = [("add_grad", "backward", None, 4), ("stored", "backward", None, 1), ("mm_grad", "backward", None, 15)]
    other = run(("mm", "forward", None, 9), ("add", "forward", None, 2), *backward)
    found = align(base, other)
    assert found.rows.loc[found.rows["other_cpu_ns"] == 4, "operator"].tolist() == ["matmul_grad"]
    (bias,) = found.rows[(found.rows["other_cpu_ns"] == 2)].to_dict("records")
    assert (bias["level"], bias["operator"], bias["phase"]) == ("operator", "matmul", "forward")
    assert (bias["base_cpu_ns"], bias["base_calls"]) == (0, 0)
    swapped = align(other, base).rows
    assert swapped.loc[swapped["level"] == UNMATCHED, "operator"].tolist() == ["accumulate_grad"]


def test_an_addition_after_another_operator_is_not_a_bias() -> None:
    base = run(("mm", "forward", None, 10))
    other = run(("mm", "forward", None, 9), ("act", "forward", None, 1), ("add", "forward", None, 2))
    found = align(base, other).rows
    assert found.loc[found["other_cpu_ns"] == 2, "level"].tolist() == [UNMATCHED]


def test_other_work_of_a_layer_belongs_to_the_layer() -> None:
    base = run(("mm", "forward", "fc", 10))
    other = run(("mm", "forward", "fc", 9), ("act", "forward", "fc", 3))
    rows = align(base, other).rows
    assert rows.loc[rows["other_cpu_ns"] == 3, "level"].tolist() == ["layer"]


@pytest.mark.parametrize("length", [0, 1, 5])
def test_a_sequence_aligns_with_itself(length: int) -> None:
    assert aligned(np.eye(length)) == [(k, k) for k in range(length)]


def test_pairs_do_not_cross_and_are_alike() -> None:
    assert aligned(np.array([[0.0, 0.9, 0.0], [0.8, 0.0, 0.7], [0.1, 0.2, 0.3]])) == [(0, 1), (1, 2)]


def test_device_work_outside_of_operators_counts() -> None:
    """An operator launched one of two kernels. The launch of the other kernel was not recorded. Both kernels count in
    the step."""
    rows = [
        host("step 0", "step", 0, 100, step=0),
        host("mm", "operator", 0, 20, phase="forward"),
        host("launch", "runtime", 5, 5, correlation=1),
        device("gemm", "kernel", 30, 40, correlation=1),
    ]
    base = trace(rows, names=NAMES.get)
    found = align(base, base)
    assert found.rows["base_device_ns"].tolist() == [40]
    assert found.matched_share["base"]["operator"] == {"cpu": 1.0, "device": 1.0, "step": 1.0}
    other = trace([host("step 0", "step", 0, 100, step=0), host("x", "operator", 0, 10)], names=NAMES.get)
    assert align(base, other).matched_share["base"]["family"]["device"] == 0.0


# -- random traces -------------------------------------------------------------------------------------------------

OPS = st.lists(
    st.tuples(
        st.sampled_from([*NAMES, "odd", "strange"]),
        st.sampled_from(["forward", "backward", "optimizer", "other"]),
        st.sampled_from([None, "net.fc1", "net.fc2", "net", "head"]),
        st.integers(1, 30),
    ),
    min_size=1,
    max_size=8,
)


@settings(max_examples=12)
@given(OPS, OPS, st.booleans())
def test_all_operator_time_is_on_one_level(base: Any, other: Any, shapes: bool) -> None:
    sides = run(*base, shapes=shapes), run(*other, shapes=shapes)
    found = align(*sides)
    for side, one in zip(("base", "other"), sides, strict=True):
        operators = one.host & one.rows("kind", *OPERATOR_KINDS)
        assert found.rows[f"{side}_cpu_ns"].sum() == one.ints("dur_ns")[operators].sum()
        shares = [found.matched_share[side][level]["cpu"] for level in LEVELS]
        assert shares == sorted(shares)
        assert shares[-1] + found.matched_share[side][UNMATCHED]["cpu"] == pytest.approx(1)
    both = (found.rows["base_calls"] > 0) & (found.rows["other_calls"] > 0)
    assert not both[found.rows["level"] == UNMATCHED].any()
    assert both[found.rows["level"].isin(["operator_shape", "family_phase", "family"])].all()


@settings(max_examples=8)
@given(OPS)
def test_nothing_of_a_run_is_unmatched_with_itself(ops: Any) -> None:
    one = run(*ops)
    found = align(one, one)
    assert UNMATCHED not in set(found.rows["level"])
    assert (found.rows[["difference_cpu_ns", "difference_device_ns"]] == 0).all(axis=None)
    assert found.matched_share["base"][UNMATCHED]["step"] == 0


@settings(max_examples=12)
@given(OPS, OPS)
def test_swapped_sides_meet_on_the_same_levels(base: Any, other: Any) -> None:
    there, back = align(run(*base), run(*other)), align(run(*other), run(*base))
    assert there.matched_share["base"] == back.matched_share["other"]
    assert there.matched_share["other"] == back.matched_share["base"]
    left = there.rows.groupby("level")["difference_cpu_ns"].sum()
    assert (left == -back.rows.groupby("level")["difference_cpu_ns"].sum()).all()


# -- recorded traces -----------------------------------------------------------------------------------------------


def _outermost_ns(one: Trace) -> int:
    """Return the time of the outermost operators in one step, computed event by event."""
    operator, parent = one.host & one.rows("kind", *OPERATOR_KINDS), one.ints("parent")
    total = 0
    for row in np.flatnonzero(operator).tolist():
        above = int(parent[row])
        while above != NO_ROW and not operator[above]:
            above = int(parent[above])
        total += int(one.ints("dur_ns")[row]) if above == NO_ROW else 0
    return total


@pytest.mark.parametrize("name", ["bert-small", "vit", "qwen05b"])
def test_the_same_model_on_two_vendors(traces: Path, name: str) -> None:
    """Each trace has one step, so its times are sums over the events. All time has a counterpart, nearly all of it in
    the same layer."""
    sides = [load(traces / "torch" / f"{vendor}-{name}.json.gz") for vendor in ("h100", "mi300x")]
    found = align(*sides)
    for side, one in zip(("base", "other"), sides, strict=True):
        assert found.per_step
        assert found.matched_share[side]["layer"]["cpu"] > 0.9
        assert found.matched_share[side]["family"]["cpu"] > 0.99
        assert found.matched_share[side]["family"]["device"] > 0.99
        in_step = one.ints("step") >= 0
        device_ns = one.ints("dur_ns")[one.rows("kind", *DEVICE_WORK) & in_step].sum()
        assert found.rows[f"{side}_device_ns"].sum() == device_ns
        outside = one.host & one.rows("kind", *OPERATOR_KINDS) & ~in_step
        if not outside.any():
            assert found.rows[f"{side}_cpu_ns"].sum() == _outermost_ns(one)
