"""Tests of the alignment: examples with known results, invariants on random traces, and recorded traces."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfkit_core.base.algorithms.arrays import NO_ROW
from perfkit_core.base.language.messages import render
from perfkit_core.compare.align.align import LEVELS, UNMATCHED, align
from perfkit_core.compare.align.layer_match import aligned
from perfkit_core.compare.explanation import fused_operators
from perfkit_core.readers.load import load
from perfkit_core.trace.model.schema import DEVICE_WORK, OPERATOR_KINDS
from perfkit_core.trace.model.trace import Trace
from perfkit_torch.operator_names import operator_name
from tests.support.events import device, host, trace
from tests.support.golden import check_golden

NAMES = {"mm": "matmul", "addmm": "linear", "add": "add", "act": "relu", "gelu": "gelu", "cp": "copy", "sum": "sum",
         "max": "max", "sm": "softmax", "attn": "attention", "conv": "conv", "bn": "batch_norm",
         "mm_grad": "matmul_grad", "add_grad": "add_grad", "stored": "accumulate_grad"}  # fmt: skip
TIMES = ("calls", "cpu_ns", "device_ns")


def run(*ops: tuple[str, str, str | None, int], shapes: bool = False) -> Trace:
    """Return a trace of one step. The operators (name, phase, layer, duration in ns) follow each other."""
    rows, now = [], 0
    for name, phase, layer, dur in ops:
        more = {"shapes": f"[[{dur}]]", "dtypes": '["float"]'} if shapes else {}
        rows.append(host(name, "operator", now, dur, phase=phase, module=layer, **more))
        now += dur
    rows.append(host("step 0", "step", 0, now, step=0))
    return trace(rows, names=NAMES.get)


def compiled(*operators: tuple[str, int], phase: str = "forward") -> Trace:
    """Return a torch trace of one step. The operators (name, duration in ns) follow each other."""
    rows, now = [], 0
    for name, dur in operators:
        rows.append(host(name, "operator", now, dur, phase=phase))
        now += dur
    return trace([*rows, host("step 0", "step", 0, now, step=0)], names=operator_name).with_meta(framework="torch")


def layers_of(*names: str) -> Trace:
    """Return a trace with one call of each layer. ``path=operator`` names the operator in the layer."""
    pairs = [name.partition("=")[::2] for name in names]
    return run(*((op or "mm", "forward", path, 10) for path, op in pairs))


def launched(*kernels: tuple[str, int, int, int | None]) -> Trace:
    """Return a step of 100 ns with an operator of 20 ns, its launch, and kernels (name, start, duration, launch)."""
    rows = [
        host("step 0", "step", 0, 100, step=0),
        host("mm", "operator", 0, 20, phase="forward"),
        host("launch", "runtime", 5, 5, correlation=1),
    ]
    return trace([*rows, *(device(name, "kernel", *times) for name, *times in kernels)], names=NAMES.get)


EAGER = compiled(("aten::add", 10), ("aten::mul", 20), ("aten::native_layer_norm", 40), ("aten::mul", 25),
                 ("aten::mm", 70), ("aten::tanh", 5))  # fmt: skip
FUSED = compiled(("triton_poi_fused_add_mul_0", 12), ("triton_per_fused_mul_native_layer_norm_1", 18),
                 ("aten::mm", 71), ("triton_poi_fused_tanh_2", 4))  # fmt: skip
BIAS = run(("mm", "forward", None, 9), ("add", "forward", None, 2), ("add_grad", "backward", None, 4),
           ("stored", "backward", None, 1), ("mm_grad", "backward", None, 15))  # fmt: skip
NO_BIAS = run(("mm", "forward", None, 10), ("mm_grad", "backward", None, 20)).with_meta(framework="other")
CASES: dict[str, tuple[Trace, Trace]] = {
    "each level leaves what it cannot match to the next; both runs have net.act, with different operators": (
        run(("mm", "forward", "net.fc1", 100), ("act", "forward", "net.act", 10), ("cp", "forward", None, 7),
            ("sum", "forward", None, 5), ("max", "other", None, 3), ("odd", "forward", None, 2)),
        run(("mm", "forward", "net.fc1", 120), ("gelu", "forward", "net.act", 30), ("cp", "forward", None, 8),
            ("max", "forward", None, 6), ("sum", "backward", None, 4), ("strange", "forward", None, 1)),
    ),
    "shapes tell calls apart": (
        run(("mm", "forward", None, 10), ("mm", "forward", None, 20), shapes=True),
        run(("mm", "forward", None, 20), ("mm", "forward", None, 40), shapes=True),
    ),
    "layers that are spelled differently match by contents and order": (
        layers_of("layers.0.linear1", "layers.0.act=act", "layers.0.linear2", "layers.1.linear1", "head=sum"),
        layers_of("layers/0/Linear_1", "layers/0/relu=act", "layers/0/Linear_2", "layers/1/Linear_1", "out=sum"),
    ),
    "wrappers around a model are ignored": (
        layers_of("fc1", "fc2", "norm=sum"),
        layers_of("module.model.fc1", "module.model.fc2", "module.model.norm=sum"),
    ),
    "one more layer stays alone": (
        layers_of("blocks.0.fc", "blocks.1.fc"), layers_of("blocks.0.fc", "blocks.1.fc", "blocks.2.fc"),
    ),
    "other work of a layer belongs to the layer": (
        run(("mm", "forward", "fc", 10)), run(("mm", "forward", "fc", 9), ("act", "forward", "fc", 3)),
    ),
    "a bias that is added after a product matches the product, and its gradient that of the product": (NO_BIAS, BIAS),
    "the same with swapped sides": (BIAS, NO_BIAS),
    "an addition after another operator is not a bias": (
        run(("mm", "forward", None, 10)),
        run(("mm", "forward", None, 9), ("act", "forward", None, 1), ("add", "forward", None, 2)),
    ),
    "a kernel without a launch counts in the step": (
        launched(("gemm", 30, 40, 1), ("lost", 75, 5, None)), launched(("gemm", 30, 40, 1), ("lost", 75, 5, None)),
    ),
    "device work without a counterpart": (launched(("gemm", 30, 40, 1)), run(("odd", "other", None, 10))),
    "both generated kernels contain a multiplication, so they are one group; tanh needs no group": (EAGER, FUSED),
    "a fusion with swapped sides": (FUSED, EAGER),
    "two compiled runs are matched by their kernels": (FUSED, FUSED),
    "Inductor names the gradient of a product as a product": (
        compiled(("autograd::engine::evaluate_function: MulBackward0", 30), ("aten::sum", 10), phase="backward"),
        compiled(("triton_per_fused_mul_sum_0", 15), phase="backward"),
    ),
}  # fmt: skip


def test_what_matches_is_the_golden_one() -> None:
    lines = []
    for title, sides in CASES.items():
        found = align(*sides)
        lines.append(f"# {title}")
        for row in found.rows.to_dict("records"):
            keys = [row[key] for key in ("layer", "operator", "phase", "family") if isinstance(row[key], str)]
            calls, cpu, device_ns = ([row[f"{side}_{what}"] for side in ("base", "other")] for what in TIMES)
            lines.append(f"{row['level']}: {', '.join(keys)}; calls {calls}, CPU {cpu} ns, device {device_ns} ns")
        for side, levels in found.matched_share.items():
            shares = (
                f"{level} " + "/".join("-" if share is None else f"{share:.3f}" for share in shares.values())
                for level, shares in levels.items()
            )
            lines.append(f"matched {'/'.join(levels['layer'])} of {side}: {', '.join(shares)}")
        lines += [f"told: {render(sentence)}" for sentence in fused_operators(found)]
        lines.append("")
    check_golden("compare/alignment.txt", "\n".join(lines))


@pytest.mark.parametrize("length", [0, 1, 5])
def test_a_sequence_aligns_with_itself(length: int) -> None:
    assert aligned(np.eye(length)) == [(k, k) for k in range(length)]


def test_pairs_do_not_cross_and_are_alike() -> None:
    assert aligned(np.array([[0.0, 0.9, 0.0], [0.8, 0.0, 0.7], [0.1, 0.2, 0.3]])) == [(0, 1), (1, 2)]


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
@given(OPS, OPS, st.booleans(), st.sampled_from(["fw", "another"]))
def test_all_operator_time_is_on_one_level_and_swapped_sides_meet_there(
    base: Any, other: Any, shapes: bool, framework: str
) -> None:
    sides = run(*base, shapes=shapes), run(*other, shapes=shapes).with_meta(framework=framework)
    there, back, alone = align(*sides), align(*reversed(sides)), align(sides[0], sides[0])
    rows = there.rows
    for side, one in zip(("base", "other"), sides, strict=True):
        operators = one.host & one.rows("kind", *OPERATOR_KINDS)
        assert rows[f"{side}_cpu_ns"].sum() == one.ints("dur_ns")[operators].sum()
        shares = [there.matched_share[side][level]["cpu"] for level in LEVELS]
        assert shares == sorted(shares)
        assert shares[-1] + there.matched_share[side][UNMATCHED]["cpu"] == pytest.approx(1)
    both = (rows["base_calls"] > 0) & (rows["other_calls"] > 0)
    assert not both[rows["level"] == UNMATCHED].any()
    assert both[rows["level"].isin(["operator_shape", "family_phase", "family"])].all()

    assert there.matched_share["base"] == back.matched_share["other"]
    assert there.matched_share["other"] == back.matched_share["base"]
    left = rows.groupby("level")["difference_cpu_ns"].sum()
    assert (left == -back.rows.groupby("level")["difference_cpu_ns"].sum()).all()

    assert UNMATCHED not in set(alone.rows["level"])
    assert (alone.rows[["difference_cpu_ns", "difference_device_ns"]] == 0).all(axis=None)
    assert alone.matched_share["base"][UNMATCHED]["step"] == 0


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
