"""Tests of the attribution of a difference: examples with known results, exact sums on random traces, and agreement
with the view ``causes`` on recorded traces."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfkit_core.causes import account_view
from perfkit_core.causes.segments import HOST
from perfkit_core.compare.align.align import align
from perfkit_core.compare.attribute.attribute import BESIDE_MEDIAN, COLUMNS, attribute
from perfkit_core.compare.attribute.causes import with_path
from perfkit_core.compare.pieces import HELD, INPUT
from perfkit_core.compare.windows import middle_steps
from perfkit_core.plugins.contracts import ViewRequest
from perfkit_core.readers.load import load
from perfkit_core.trace.model.trace import Trace
from perfkit_core.views.merging import table_of
from perfkit_core.views.steps.step_rows import step_rows
from tests.support.compared import attributed
from tests.support.events import device, host, trace
from tests.support.golden import check_golden

NAMES = {"mm": "matmul", "act": "relu", "cp": "copy"}
SUMMED = ["base_ns", "other_ns", "difference_ns", "count_effect_ns", "per_call_effect_ns"]


def run(rows: list[dict[str, Any]]) -> Trace:
    return trace(rows, names=NAMES.get)


def leaves(table: pd.DataFrame) -> pd.DataFrame:
    return table[~table.index.isin(table["parent"])]


# 0      10 load      110      mm 20–60 (launch 30–40)      kernel 50–90       act 60–100 (launch 70–75, kernel 90–100)
BASE = [
    host("step 0", "step", 0, 120, step=0),
    host("load", "dataloader", 0, 20, phase="dataloader"),
    host("mm", "operator", 20, 40, phase="forward"),
    host("launch", "runtime", 30, 10, correlation=1),
    device("gemm", "kernel", 50, 40, correlation=1),
    host("act", "operator", 60, 40, phase="forward"),
    host("launch", "runtime", 70, 5, correlation=2),
    device("relu", "kernel", 90, 10, correlation=2),
]
# In this step, the load takes 30 ns more, the kernel of mm takes 10 ns more, and there are two activations.
OTHER = [
    host("step 0", "step", 0, 200, step=0),
    host("load", "dataloader", 0, 50, phase="dataloader"),
    host("mm", "operator", 50, 40, phase="forward"),
    host("launch", "runtime", 60, 10, correlation=1),
    device("gemm", "kernel", 80, 50, correlation=1),
    host("act", "operator", 90, 40, phase="forward"),
    host("launch", "runtime", 100, 5, correlation=2),
    device("relu", "kernel", 130, 10, correlation=2),
    host("act", "operator", 140, 40, phase="forward"),
    host("launch", "runtime", 150, 5, correlation=3),
    device("relu", "kernel", 160, 10, correlation=3),
]


HIDDEN = [
    device("fill", "memset", 55, 5, stream=8),
    device("fill", "memset", 65, 5, stream=8),
    host("act", "operator", 22, 5, tid=2, phase="forward"),
]
LOST = [device("relu", "kernel", 42, 4), device("relu", "kernel", 92, 4, stream=8)]


def calls(count: int, dur: int) -> Trace:
    ops = [host("mm", "operator", at * dur, dur) for at in range(count)]
    return run([host("step 0", "step", 0, count * dur, step=0), *ops])


CASES = {
    "of 80 ns, loading takes 30, the second act 30 on the host, gemm 10, and the second relu 10": (
        run(BASE), run(OTHER),
    ),
    "2 calls of 10 ns and 3 of 20: count effect (3 − 2)(10 + 20)/2, per-call effect (20 − 10)(2 + 3)/2": (
        calls(2, 10), calls(3, 20),
    ),
    "kernels without a launch have no phase; their calls count, even if another stream hides them": (
        run(BASE), run([*BASE, *LOST]),
    ),
    "memsets run during gemm, and act during mm on another thread: calls without exclusive time": (
        run(BASE), run([*BASE, *HIDDEN]),
    ),
    "without steps, the recordings are compared": (run([host("mm", "operator", 5, 10)]), run(BASE)),
}  # fmt: skip


def test_trees_are_the_golden_ones() -> None:
    numbers = [*SUMMED, "base_calls", "other_calls", "explained_ratio"]
    lines = ["level name (place): " + ", ".join(numbers)]
    for title, sides in CASES.items():
        table = attributed(*sides)
        assert tuple(table.columns) == COLUMNS
        lines += ["", f"# {title}"]
        for row in table.to_dict("records"):
            shown = ", ".join("-" if pd.isna(row[name]) else f"{row[name]:g}" for name in numbers)
            place = "" if pd.isna(row["place"]) else f" ({row['place']})"
            lines.append(f"{'  ' * row['depth']}{row['level']} {row['name']}{place}: {shown}")
    check_golden("compare/attribution.txt", "\n".join(lines) + "\n")


def test_the_average_of_middle_steps_and_the_rest_to_the_median() -> None:
    """The steps take 10, 11, 15 and 100 ns. The half of the steps that is nearest to the median is averaged."""

    def steps(*lengths: int) -> Trace:
        rows, now = [], 0
        for number, length in enumerate(lengths):
            rows += [
                host(f"step {number}", "step", now, length, step=number),
                host("mm", "operator", now, max(length - 4, 0)),
            ]
            now += length
        return run(rows)

    even = attributed(steps(10, 11, 15, 100), steps(13, 13, 13, 13))
    assert even.loc[0, ["base_ns", "other_ns"]].tolist() == [13, 13]
    assert BESIDE_MEDIAN not in set(even["name"])
    # the middle steps take 11000, 12000 and 12030
    odd = attributed(steps(100, 11000, 12000, 12030, 90000), steps(13000))
    assert odd.loc[0, ["base_ns", "other_ns", "difference_ns"]].tolist() == [12000, 13000, 1000]
    assert odd.set_index("name").loc[BESIDE_MEDIAN, "base_ns"] == 323
    assert leaves(odd)["difference_ns"].sum() == 1000
    lengths = [1, 50, 50, 50, 100, 160, 160, 160, 160, 999]
    assert [len(middle_steps(steps(*lengths[:count]))) for count in (1, 2, 3, 7, 10)] == [1, 2, 2, 4, 5]


def test_nothing_recorded_gives_no_rows() -> None:
    counter = {"name": "load", "kind": "counter", "start_ns": 0, "dur_ns": 0, "device": "cpu", "pid": 1, "tid": 1}
    empty = attributed(run([counter]), run(BASE))
    assert empty.empty
    assert tuple(empty.columns) == COLUMNS


# -- random traces -------------------------------------------------------------------------------------------------

EVENTS = st.lists(
    st.tuples(
        st.sampled_from(["mm", "act", "cp", "other", "load", "gemm", "copy", "nccl", "frame"]),
        st.integers(0, 60),
        st.integers(0, 25),
        st.integers(1, 2),
    ),
    max_size=12,
)


@st.composite
def runs(draw: st.DrawFn) -> Trace:
    starts = sorted(draw(st.sets(st.integers(0, 60), min_size=1, max_size=4)))
    rows = [host(f"step {i}", "step", start, draw(st.integers(1, 30)), step=i) for i, start in enumerate(starts)]
    # every step gets an operator, because steps without operators at the end are left out
    rows += [host("mm", "operator", start, 1) for start in starts]
    for name, start, dur, where in draw(EVENTS):
        if name in ("gemm", "nccl", "copy"):
            kind = "memcpy" if name == "copy" else "kernel"
            rows.append(device(name, kind, start, dur, correlation=draw(st.integers(1, 3)), stream=where))
        elif name == "load":
            rows.append(host(name, "dataloader", start, dur, tid=where, phase="dataloader"))
        elif name == "frame":
            rows.append(host("m.py(3): f", "python", start, dur, tid=where))
        else:
            phase = draw(st.sampled_from(["forward", "backward", "optimizer", None]))
            module = draw(st.sampled_from([None, "a", "b.c"]))
            rows.append(host(name, "operator", start, dur, tid=where, phase=phase, module=module))
            rows.append(host("launch", "runtime", start, dur // 2, tid=where, correlation=draw(st.integers(1, 3))))
    return run(rows)


@settings(max_examples=25)
@given(runs(), runs())
def test_every_level_sums_to_the_difference(base: Trace, other: Trace) -> None:
    """Swapped sides change the sign of every difference, and nothing else. A run differs from itself in nothing."""
    table = attributed(base, other)
    for side, one in (("base", base), ("other", other)):
        durations = sorted(one.ints("dur_ns")[step_rows(one)].tolist())
        low, high = durations[(len(durations) - 1) // 2], durations[len(durations) // 2]
        assert table.loc[0, f"{side}_ns"] == (low + high) // 2
    times = SUMMED[:3]
    assert leaves(table)[times].sum().tolist() == table.loc[0, times].tolist()
    for row, below in table.groupby("parent"):
        if row >= 0:
            assert below[times].sum().tolist() == table.loc[row, times].tolist()
            if table.loc[row, "level"] not in ("operator", "family"):
                continue
        assert (below["depth"] == (table.loc[row, "depth"] + 1 if row >= 0 else 0)).all()
    assert (table["count_effect_ns"] + table["per_call_effect_ns"] == table["difference_ns"]).all()
    above = table[~table["level"].isin(["operator", "event", "kernel"]) & table.index.isin(table["parent"])]
    for row in above.index:
        assert table.loc[table["parent"] == row, "count_effect_ns"].sum() == table.loc[row, "count_effect_ns"]

    back = attributed(other, base)
    assert table[["depth", "level", "name", "parent"]].equals(back[["depth", "level", "name", "parent"]])
    assert (table[SUMMED[2:]] == -back[SUMMED[2:]]).all(axis=None)
    assert table["base_ns"].tolist() == back["other_ns"].tolist()
    assert table["base_calls"].tolist() == back["other_calls"].tolist()
    explained = (side["explained_ratio"].to_numpy(np.float64, na_value=np.nan) for side in (table, back))
    assert next(explained) == pytest.approx(next(explained), nan_ok=True)

    alone = attributed(base, base)
    assert (alone[SUMMED[2:]] == 0).all(axis=None)
    assert (alone["base_ns"] == alone["other_ns"]).all()
    assert alone["explained_ratio"].isna().all()


# -- recorded traces -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    [
        "torch/h100-vit.json.gz", "torch/mi300x-ddp-resnet18-train.json.gz", "torch/cpu-only-rank34.json.gz",
        "torch/mi210-gpu-only.json.gz", "torch/mtia-inference.json.gz", "torch/b200-eager-rank0of8.json.gz",
        "torch/pairs/resnet50-workers4.json.gz", "torch/v100-ns-resolution.json.gz",
        "paddle/cpu-3.3.1/mlp_medium_mem/cycle0.pb.gz", "paddle/cpu-3.3.1/cnn_small/cycle0.pb",
        "paddle/gpu-synthetic/gpu1.pb",
    ],
)  # fmt: skip
def test_a_recording_differs_from_itself_in_nothing(name: str, traces: Path) -> None:
    one = load(traces / name)
    found = align(one, one)
    assert "unmatched" not in set(found.rows["level"])
    assert (found.rows[["difference_cpu_ns", "difference_device_ns"]] == 0).all(axis=None)
    table = attributed(one, one)
    if table.empty:
        return
    assert leaves(table)["base_ns"].sum() == table.loc[0, "base_ns"]
    assert (table["difference_ns"] == 0).all()


@pytest.mark.parametrize(
    ("base", "other"),
    [
        ("h100-vit", "mi300x-vit"), ("h100-bert-small", "mi300x-bert-small"),
        ("cpu-only-rank34", "v100-ns-resolution"), ("b200-eager-rank0of8", "mi300x-ddp-resnet18-train"),
    ],
)  # fmt: skip
def test_causes_are_those_of_the_account_of_the_compared_steps(base: str, other: str, traces: Path) -> None:
    """For each word of the account, and for each kind of host work, the tree has the time of the view causes."""
    sides = [load(traces / "torch" / f"{name}.json.gz") for name in (base, other)]
    alignment = align(*sides)
    tree = attribute(alignment)
    parts = with_path(tree)
    for side, one, windows in zip(("base", "other"), sides, alignment.windows, strict=True):
        numbers = tuple(one.ints("step")[windows.row].tolist())
        account = table_of(account_view.VIEW, one, ViewRequest(steps=numbers or None))
        depth, total = account["depth"], account["total_ns"].to_numpy(np.int64) / len(windows)
        word = account["cause"].where(depth == 0).ffill()
        mine = parts.groupby("category")[f"{side}_ns"].sum()
        mine = mine.groupby(mine.index.map(lambda name: HOST if name in (INPUT, *HELD) else name)).sum()
        theirs = dict(zip(account["cause"][depth == 0], total[depth == 0], strict=True))
        assert mine.drop(BESIDE_MEDIAN, errors="ignore").to_dict() == pytest.approx(
            {name: theirs.get(name, 0) for name in mine.index if name != BESIDE_MEDIAN}, abs=len(parts)
        )
        assert sum(theirs.values()) == pytest.approx(windows.mean_ns, abs=1)
        kinds = parts[parts["category"].isin(HELD)].groupby("family")[f"{side}_ns"].sum()
        of_account = account.assign(ns=total)[(depth == 1) & (word == HOST)].set_index("cause")["ns"]
        assert kinds.to_dict() == pytest.approx({name: of_account.get(name, 0) for name in kinds.index}, abs=len(parts))


def test_the_memory_does_not_depend_on_the_longest_name_times_the_number_of_names() -> None:
    """The peak stays below the number of events times the longest name, which a table of fixed width would take."""
    long, count = "A" * 100_000, 1000
    base = run([host("step 0", "step", 0, 2 * count, step=0), host(long, "operator", 0, 1)])
    steps = [host("step 0", "step", 0, 2 * count, step=0)]
    other = run(steps + [host(f"op {number}", "operator", 2 * number, 1) for number in range(count)])
    tracemalloc.start()
    table = attributed(base, other)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert long in set(table["name"])
    assert peak < count * len(long)
