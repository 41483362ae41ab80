"""Every number of ``key_averages()`` is reproduced from the same run, to the nanosecond, by walking its whole table."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

torch = pytest.importorskip("torch", reason="needs torch: pip install 'perfkit[torch]'")

from torch_models import MODELS, train  # noqa: E402

from perfkit_core.analyses import device, memcpy, operators, overview, steps, user_annotations  # noqa: E402
from perfkit_core.analyses import model as model_view  # noqa: E402
from perfkit_core.loading import load  # noqa: E402
from perfkit_core.plugins.contracts import ViewRequest  # noqa: E402
from perfkit_core.trace import Trace  # noqa: E402
from perfkit_torch import trace_handler  # noqa: E402

OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "shapes": {"record_shapes": True},
    "memory": {"profile_memory": True},
    "both": {"record_shapes": True, "profile_memory": True, "with_flops": True},
}


def native(events: Any) -> pd.DataFrame:
    """key_averages() as integers: times are floats of µs there, exact multiples of 1 ns."""
    return pd.DataFrame(
        [
            {
                "name": e.key,
                "shapes": str(e.input_shapes),
                "annotation": e.is_user_annotation,
                "calls": e.count,
                "self_cpu_ns": round(e.self_cpu_time_total * 1000),
                "total_cpu_ns": round(e.cpu_time_total * 1000),
                "self_device_ns": round(e.self_device_time_total * 1000),
                "total_device_ns": round(e.device_time_total * 1000),
            }
            for e in events
            if e.key != "[memory]"
        ]
    )


MEASURES = ["calls", "self_cpu_ns", "total_cpu_ns", "self_device_ns", "total_device_ns"]


def ours(trace: Trace, request: ViewRequest) -> pd.DataFrame:
    """All rows of our tables that key_averages() has in its single one."""
    spans = pd.concat([operators.table(trace, request), user_annotations.table(trace, request)])
    host = operators.span_table(trace, request, trace.rows("kind", "step", "python"), "kind")
    spans = pd.concat([spans, host])
    spans["name"] = spans["name"].str.replace(r"^ProfilerStep#\d+$", "ProfilerStep*", regex=True)
    return spans


def compare(mine: pd.DataFrame, theirs: pd.DataFrame, keys: list[str]) -> int:
    """Assert that both hold the same rows and numbers; how many numbers were compared."""
    mine = mine.groupby(keys, dropna=False)[MEASURES].sum().sort_index()
    theirs = theirs.groupby(keys, dropna=False)[MEASURES].sum().sort_index()
    assert list(mine.index) == list(theirs.index)
    different = mine.compare(theirs.astype(mine.dtypes))
    assert different.empty, different.to_string()
    return int(theirs.size)


def record(name: str, options: dict[str, Any], folder: Path, **grouping: Any) -> tuple[list[Trace], list[Any]]:
    averages: list[Any] = []
    handler = trace_handler(folder, also=[lambda profiler: averages.append(profiler.key_averages(**grouping))])
    train(name, handler, **options)
    assert len(averages) == 1
    return [load(path) for path in handler.written], averages


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("options", OPTIONS)
def test_every_row_of_key_averages(model: str, options: str, tmp_path: Path) -> None:
    (trace,), (averages,) = record(model, OPTIONS[options], tmp_path)
    count = compare(ours(trace, ViewRequest()), native(averages), ["name"])
    print(f"{model}, {options}: {count} numbers equal")
    assert count > 100


@pytest.mark.parametrize("model", MODELS)
def test_with_stacks_only_ranges_that_overlap_differ(model: str, tmp_path: Path) -> None:
    """With stacks, frames and labels overlap without nesting. The native self time subtracts such children twice and
    turns negative; ours subtracts their union. Operators, calls and totals are equal all the same."""
    (trace,), (averages,) = record(model, {"with_stack": True}, tmp_path)
    mine, theirs = ours(trace, ViewRequest()), native(averages)
    operator_names = set(operators.table(trace, ViewRequest())["name"])
    count = compare(mine[mine["name"].isin(operator_names)], theirs[theirs["name"].isin(operator_names)], ["name"])
    mine, theirs = (table.groupby("name")[MEASURES].sum() for table in (mine, theirs))
    other = [measure for measure in MEASURES if measure != "self_cpu_ns"]
    pd.testing.assert_frame_equal(mine[other], theirs[other], check_dtype=False)
    assert (mine["self_cpu_ns"] >= theirs["self_cpu_ns"]).all()
    assert (mine["self_cpu_ns"] >= 0).all()
    assert (theirs["self_cpu_ns"] < 0).any()
    print(f"{model}, with stacks: {count + theirs[other].size} numbers equal")


@pytest.mark.parametrize("model", MODELS)
def test_every_row_grouped_by_shape(model: str, tmp_path: Path) -> None:
    (trace,), (averages,) = record(model, {"record_shapes": True}, tmp_path, group_by_input_shape=True)
    mine = ours(trace, ViewRequest(by=("shape",)))
    mine["shapes"] = mine["shapes"].fillna("[]").map(_as_key_averages_prints)
    theirs = native(averages)
    theirs["shapes"] = theirs["shapes"].str.replace(r"\s", "", regex=True)
    count = compare(mine, theirs, ["name", "shapes"])
    print(f"{model}, by shape: {count} numbers equal")
    assert count > 100


def covered(ranges: list[tuple[int, int]]) -> int:
    """Union by the definition, one range after the other."""
    total, reach = 0, 0
    for start, end in sorted(ranges):
        total += max(0, end - max(start, reach))
        reach = max(reach, end)
    return total


@pytest.mark.parametrize("model", MODELS)
def test_overview_model_memcpy_and_device_against_the_native_events(model: str, tmp_path: Path) -> None:
    """Covered time of each kind, and the phases that torch names, from the profiler's own event list. That list leaves
    out re-dispatches, which lie inside their operator: calls differ by them, covered time does not."""
    lists: list[Any] = []
    handler = trace_handler(tmp_path, also=[lambda profiler: lists.append(list(profiler.events()))])
    train(model, handler)
    trace, ranges = load(handler.written[0]), {}
    again = int((operators.survivors(trace) != np.arange(len(trace))).sum())
    for event in lists[0]:
        span = (round(event.time_range.start * 1000), round(event.time_range.end * 1000))
        ranges.setdefault(_native_kind(event), []).append(span)
    table = overview.table(trace, ViewRequest()).set_index("kind")
    calls = {kind: len(spans) + again * (kind == "operator") for kind, spans in ranges.items()}
    assert table["calls"].to_dict() == calls
    assert again > 0
    assert table["time_ns"].to_dict() == {kind: covered(spans) for kind, spans in ranges.items()}
    phases = model_view.table(trace, ViewRequest()).set_index("phase")
    inside = [(a, b) for a, b in ranges["optimizer"] if any(s <= a < e for s, e in ranges["step"])]
    assert phases.loc["optimizer", "calls"] == len(inside) == 4
    assert phases.loc["optimizer", "total_cpu_ns"] == sum(b - a for a, b in inside)
    assert phases.loc["step", "total_cpu_ns"] == sum(b - a for a, b in ranges["step"])
    assert memcpy.table(trace, ViewRequest()).empty
    assert device.table(trace, ViewRequest()).empty
    print(f"{model}, overview and model: {2 * len(ranges) + 3} numbers equal")


def _native_kind(event: Any) -> str:
    """Our kind of a native event, told from its flags and name as torch documents them."""
    if event.name.startswith("ProfilerStep"):
        return "step"
    if event.name.startswith("enumerate(DataLoader)"):
        return "dataloader"
    if event.name.startswith("Optimizer."):
        return "optimizer"
    return "annotation" if event.is_user_annotation else "operator"


def _as_key_averages_prints(shapes: str) -> str:
    """Its table shows an argument that is a list of tensors as [], where ours has their shapes."""
    arguments = [[] if any(isinstance(size, list) for size in shape) else shape for shape in json.loads(shapes)]
    return json.dumps(arguments, separators=(",", ":"))


def test_steps_equal_the_native_step_rows(tmp_path: Path) -> None:
    (trace,), (averages,) = record("mlp", {}, tmp_path)
    table = steps.table(trace, ViewRequest())
    row = native(averages).set_index("name").loc["ProfilerStep*"]
    assert list(table["step"]) == [2, 3]
    assert table["dur_ns"].sum() == row["total_cpu_ns"]
