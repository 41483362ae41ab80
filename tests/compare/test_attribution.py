"""Tests of the attribution of a difference: examples with known results, exact sums on random traces, and agreement
with the view ``partition`` on recorded traces."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfkit_core.compare.align.align import align
from perfkit_core.compare.attribute.attribute import BESIDE_MEDIAN, COLUMNS, attribute
from perfkit_core.compare.slices import middle_steps
from perfkit_core.readers.load import load
from perfkit_core.trace.model.trace import Trace
from perfkit_core.views.steps import partition
from perfkit_core.views.steps.activity import has_device_work
from perfkit_core.views.steps.step_rows import step_rows
from tests.support.events import device, host, trace

NAMES = {"mm": "matmul", "act": "relu", "cp": "copy"}


def run(rows: list[dict[str, Any]]) -> Trace:
    return trace(rows, names=NAMES.get)


def leaves(table: pd.DataFrame) -> pd.DataFrame:
    return table[~table.index.isin(table["parent"])]


def node(table: pd.DataFrame, **wanted: str) -> dict[str, Any]:
    """Return the only row with the given values; ``under`` is the name of a row above."""
    under = wanted.pop("under", None)
    rows = table[np.logical_and.reduce([table[key] == value for key, value in wanted.items()])]
    if under is not None:
        rows = rows[[under in _above(table, row) for row in rows.index]]
    (found,) = rows.to_dict("records")
    return found


def _above(table: pd.DataFrame, row: int) -> list[str]:
    names = []
    while row >= 0:
        names.append(table.loc[row, "name"])
        row = table.loc[row, "parent"]
    return names


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


def test_worked_by_hand() -> None:
    """Of the difference of 80 ns, loading takes 30 ns, the second act takes 30 ns on the host, gemm takes 10 ns, and
    the second relu takes 10 ns."""
    table = attribute(run(BASE), run(OTHER))
    assert tuple(table.columns) == COLUMNS
    times = ["base_ns", "other_ns", "difference_ns"]
    assert table.loc[0, ["level", *times]].tolist() == ["step", 120, 200, 80]
    found = {
        row["name"]: [row[name] for name in times] for row in table[table["level"] == "category"].to_dict("records")
    }
    assert found == {
        "input_wait": [20, 50, 30],
        "launch_and_host": [30, 60, 30],
        "device_compute": [50, 70, 20],
        "idle": [20, 20, 0],
    }
    host_act = node(table, level="operator", name="relu", place="host")
    assert [host_act[name] for name in times] == [0, 30, 30]
    assert (host_act["base_calls"], host_act["other_calls"]) == (1.0, 2.0)
    assert node(table, level="event", name="launch", under="relu")["difference_ns"] == 5
    assert node(table, level="event", name="act")["difference_ns"] == 25
    gemm = node(table, level="kernel", name="gemm")
    assert (gemm["count_effect_ns"], gemm["per_call_effect_ns"]) == (0, 10)
    relu = node(table, level="kernel", name="relu")
    assert (relu["count_effect_ns"], relu["per_call_effect_ns"]) == (10, 0)
    assert node(table, level="operator", name="(nothing recorded at the end)")["base_ns"] == 20
    assert table["explained_ratio"].iloc[-1] == 1.0


def test_both_effects_of_one_operator() -> None:
    """Two calls of 10 ns become three calls of 20 ns. The count effect is (3 − 2)(10 + 20)/2 = 15 ns, and the per-call
    effect is (20 − 10)(2 + 3)/2 = 25 ns."""
    sides = []
    for calls, dur in ((2, 10), (3, 20)):
        ops = [host("mm", "operator", i * dur, dur) for i in range(calls)]
        sides.append(run([host("step 0", "step", 0, calls * dur, step=0), *ops]))
    matmul = node(attribute(*sides), level="operator", name="matmul")
    assert [matmul[k] for k in ("difference_ns", "count_effect_ns", "per_call_effect_ns")] == [40, 15, 25]


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

    even = attribute(steps(10, 11, 15, 100), steps(13, 13, 13, 13))
    assert even.loc[0, ["base_ns", "other_ns"]].tolist() == [13, 13]
    assert BESIDE_MEDIAN not in set(even["name"])
    # the middle steps take 11000, 12000 and 12030
    odd = attribute(steps(100, 11000, 12000, 12030, 90000), steps(13000))
    assert odd.loc[0, ["base_ns", "other_ns", "difference_ns"]].tolist() == [12000, 13000, 1000]
    assert node(odd, name=BESIDE_MEDIAN)["base_ns"] == 323
    assert leaves(odd)["difference_ns"].sum() == 1000
    lengths = [1, 50, 50, 50, 100, 160, 160, 160, 160, 999]
    assert [len(middle_steps(steps(*lengths[:count]))) for count in (1, 2, 3, 7, 10)] == [1, 2, 2, 4, 5]


def test_device_work_without_a_launch_has_calls_but_no_phase() -> None:
    """Unlaunched device work has no phase, even between work of one phase. Its calls count, even if another stream
    hides them."""
    lost = [device("relu", "kernel", 42, 4), device("relu", "kernel", 92, 4, stream=8)]
    table = attribute(run([*BASE, *lost]), run([*BASE, *lost]))
    relu = node(table, name="relu", under="(no launch recorded)", level="kernel")
    assert (relu["base_ns"], relu["base_calls"]) == (4, 2)
    assert {"(no phase)", "device_compute"} <= set(
        _above(table, table.index[table["name"] == "(no launch recorded)"][0])
    )


def test_calls_that_others_hide_entirely_count() -> None:
    """The memsets run during gemm, and act runs during mm on another thread. Their calls count, although they have no
    exclusive time."""
    hidden = [device("fill", "memset", 55, 5, stream=8), device("fill", "memset", 65, 5, stream=8)]
    inner = host("act", "operator", 22, 5, tid=2, phase="forward")
    table = attribute(run(BASE), run([*BASE, *hidden, inner]))
    fill = node(table, name="fill")
    assert [fill[name] for name in ("base_ns", "other_ns", "base_calls", "other_calls")] == [0, 0, 0, 2]
    assert "exposed_copy" in _above(table, table.index[table["name"] == "fill"][0])
    relu = node(table, level="operator", name="relu", place="host")
    assert [relu[name] for name in ("base_ns", "other_ns", "base_calls", "other_calls")] == [0, 0, 1, 2]
    assert leaves(table)["base_ns"].sum() == 120


def test_without_steps_the_recordings_are_compared() -> None:
    table = attribute(run([host("mm", "operator", 5, 10)]), run(BASE))
    assert table.loc[0, ["level", "base_ns", "other_ns"]].tolist() == ["run", 10, 100]
    assert leaves(table)["difference_ns"].sum() == 90


def test_nothing_recorded_gives_no_rows() -> None:
    counter = {"name": "load", "kind": "counter", "start_ns": 0, "dur_ns": 0, "device": "cpu", "pid": 1, "tid": 1}
    empty = attribute(run([counter]), run(BASE))
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


SUMMED = ["base_ns", "other_ns", "difference_ns", "count_effect_ns", "per_call_effect_ns"]


@settings(max_examples=25)
@given(runs(), runs())
def test_every_level_sums_to_the_difference(base: Trace, other: Trace) -> None:
    table = attribute(base, other)
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


@settings(max_examples=25)
@given(runs())
def test_a_run_differs_from_itself_in_nothing(one: Trace) -> None:
    table = attribute(one, one)
    assert (table[SUMMED[2:]] == 0).all(axis=None)
    assert (table["base_ns"] == table["other_ns"]).all()
    assert table["explained_ratio"].isna().all()


@settings(max_examples=25)
@given(runs(), runs())
def test_swapped_sides_change_their_sign_and_nothing_else(base: Trace, other: Trace) -> None:
    there, back = attribute(base, other), attribute(other, base)
    assert there[["depth", "level", "name", "parent"]].equals(back[["depth", "level", "name", "parent"]])
    for name in SUMMED[2:]:
        assert (there[name] == -back[name]).all()
    assert there["base_ns"].tolist() == back["other_ns"].tolist()
    assert there["base_calls"].tolist() == back["other_calls"].tolist()
    explained = (side["explained_ratio"].to_numpy(np.float64, na_value=np.nan) for side in (there, back))
    assert next(explained) == pytest.approx(next(explained), nan_ok=True)


# -- recorded traces -----------------------------------------------------------------------------------------------


def _check_with_itself(path: Path) -> None:
    """Compare a run with itself. Nothing differs, and the categories of the middle steps equal those of the view
    ``partition``."""
    one = load(path)
    found = align(one, one)
    assert "unmatched" not in set(found.rows["level"])
    assert (found.rows[["difference_cpu_ns", "difference_device_ns"]] == 0).all(axis=None)
    table = attribute(one, one)
    if table.empty:
        return
    assert leaves(table)["base_ns"].sum() == table.loc[0, "base_ns"]
    assert (table["difference_ns"] == 0).all()
    if table.loc[0, "level"] == "step":
        windows = middle_steps(one)
        rows = step_rows(one)
        chosen = rows[np.isin(one.ints("start_ns")[rows], windows.start_ns) & np.isin(one.end_ns[rows], windows.end_ns)]
        times = partition.partition(one, chosen).sum(axis=0) / len(windows)
        mine = table[(table["level"] == "category") & (table["name"] != BESIDE_MEDIAN)].set_index("name")["base_ns"]
        names = partition.ON_DEVICE if has_device_work(one) else partition.ON_HOST
        assert [mine.get(name, 0) for name in names] == pytest.approx(times.tolist(), abs=1)


def test_every_torch_trace(torch_file: Path) -> None:
    _check_with_itself(torch_file)


def test_every_paddle_trace(paddle_file: Path) -> None:
    _check_with_itself(paddle_file)


def test_the_memory_does_not_depend_on_the_longest_name_times_the_number_of_names() -> None:
    """The peak stays below the number of events times the longest name, which a table of fixed width would take."""
    long, count = "A" * 100_000, 1000
    base = run([host("step 0", "step", 0, 2 * count, step=0), host(long, "operator", 0, 1)])
    steps = [host("step 0", "step", 0, 2 * count, step=0)]
    other = run(steps + [host(f"op {number}", "operator", 2 * number, 1) for number in range(count)])
    tracemalloc.start()
    table = attribute(base, other)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert long in set(table["name"])
    assert peak < count * len(long)
