"""Every number of ``key_averages()`` is computed from the same run and compared exactly, in ns and bytes."""

from __future__ import annotations

import functools
import json
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from perfkit_core.views.operators.calls import survivors
from perfkit_core.views.operators.operators import span_table

torch = pytest.importorskip("torch", reason="needs torch: pip install 'perfkit[torch]'")

from perfkit_core.plugins.contracts import ViewRequest  # noqa: E402
from perfkit_core.readers.load import load  # noqa: E402
from perfkit_core.trace.model.trace import Trace  # noqa: E402
from perfkit_core.views.devices import device, kernels  # noqa: E402
from perfkit_core.views.merging import table_of  # noqa: E402
from perfkit_core.views.operators import annotations as user_annotations  # noqa: E402
from perfkit_core.views.operators import operators  # noqa: E402
from perfkit_core.views.steps import overview, step_phases, steps  # noqa: E402
from perfkit_torch import trace_handler  # noqa: E402
from tests.support.torch_models import MODELS, train  # noqa: E402


def _config(**options: bool) -> dict[str, Any]:
    """Return an experimental option of the profiler, or nothing if this torch does not know it."""
    from torch._C._profiler import _ExperimentalConfig

    try:
        return {"experimental_config": _ExperimentalConfig(**options)}
    except TypeError:
        return {}


OVERLOADS, FRAMES = _config(capture_overload_names=True), _config(verbose=True)
OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "memory": {"profile_memory": True},
    "all": {"record_shapes": True, "profile_memory": True, "with_flops": True, **OVERLOADS},
    "stacks": {"with_stack": True, "profile_memory": True, **FRAMES},
}
GROUPINGS: dict[str, dict[str, Any]] = {
    "name": {},
    "shape": {"group_by_input_shape": True},
    "overload": {"group_by_overload_name": True},
    "1 frame": {"group_by_stack_n": 1},
    "4 frames": {"group_by_stack_n": 4},
}
TIMES = ["calls", "self_cpu_ns", "total_cpu_ns", "self_device_ns", "total_device_ns"]
BYTES = ["self_cpu_bytes", "total_cpu_bytes", "self_device_bytes", "total_device_bytes"]
MEASURES = [*TIMES, *BYTES, "flops"]
EXACT = [*TIMES, *BYTES]
"""Numbers that are the same without the native mode. perfkit counts FLOPs from shapes, by formulas of its own."""
NATIVE = ViewRequest(native=True)


NATIVE_NAMES = {
    "calls": "count", "self_cpu_ns": "self_cpu_time_total", "total_cpu_ns": "cpu_time_total",
    "self_device_ns": "self_device_time_total", "total_device_ns": "device_time_total",
    "self_cpu_bytes": "self_cpu_memory_usage", "total_cpu_bytes": "cpu_memory_usage",
    "self_device_bytes": "self_device_memory_usage", "total_device_bytes": "device_memory_usage", "flops": "flops",
}  # fmt: skip
"""Column → attribute of a row of key_averages()."""


def native(events: Any) -> pd.DataFrame:
    """Return key_averages() as integers. torch returns times as floats in µs, which are exact multiples of 1 ns."""
    rows = []
    for event in events:
        shapes = str(event.input_shapes).replace(" ", "")
        texts = {"name": event.key, "shapes": shapes, "overload": event.overload_name, "stack": ";".join(event.stack)}
        numbers = {column: getattr(event, name) for column, name in NATIVE_NAMES.items()}
        rows.append(texts | {key: round(n * 1000) if key.endswith("_ns") else n for key, n in numbers.items()})
    return pd.DataFrame(rows)


def ours(trace: Trace, request: ViewRequest) -> pd.DataFrame:
    """Return all rows of perfkit's tables that key_averages() has in its one table."""
    spans = [operators.table(trace, request), user_annotations.table(trace, request)]
    spans.append(span_table(trace, request, trace.rows("kind", "step", "python"), "kind"))
    table = pd.concat(spans)
    table["name"] = table["name"].str.replace(r"^ProfilerStep#\d+$", "ProfilerStep*", regex=True)
    return table


def compare(mine: pd.DataFrame, theirs: pd.DataFrame, keys: list[str], measures: list[str] = MEASURES) -> int:
    """Assert that both tables have the same rows and numbers. Numbers that are unknown here are 0 in torch. Return how
    many numbers were compared."""
    mine = mine.groupby(keys, dropna=False)[measures].sum().sort_index()
    theirs = theirs.groupby(keys, dropna=False)[measures].sum().sort_index()
    assert list(mine.index) == list(theirs.index)
    different = mine.astype("int64").compare(theirs.astype("int64"))
    assert different.empty, different.to_string()
    return int(theirs.size)


@dataclass(frozen=True)
class Recording:
    """A recorded training, and what torch says about it: key_averages() by grouping, its table, and all events."""

    trace: Trace
    averages: dict[str, pd.DataFrame]
    printed: str
    events: list[Any]


@pytest.fixture(scope="module")
def record(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], Recording]:
    @functools.cache
    def record(model: str, options: str) -> Recording:
        found: list[Any] = []

        def also(profiler: Any) -> None:
            averages = {name: native(profiler.key_averages(**grouping)) for name, grouping in GROUPINGS.items()}
            table = profiler.key_averages().table(row_limit=-1, max_name_column_width=200)
            found.append((averages, table, list(profiler.events())))

        handler = trace_handler(tmp_path_factory.mktemp("parity"), also=[also])
        train(model, handler, **OPTIONS[options])
        ((averages, printed, events),) = found
        (path,) = handler.written
        return Recording(load(path), averages, printed, events)

    return record


Record = Callable[[str, str], Recording]


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("options", OPTIONS)
def test_every_row_of_key_averages(model: str, options: str, record: Record) -> None:
    """The native mode is also compared. On one thread, it gives the same memory. With stacks, frames and labels overlap
    without nesting, so only the native mode is the same."""
    recording = record(model, options)
    theirs = recording.averages["name"]
    natively = ours(recording.trace, NATIVE)
    count = compare(natively, theirs, ["name"])
    mine = ours(recording.trace, ViewRequest())
    if options != "stacks":
        count += compare(mine, theirs[theirs["name"] != "[memory]"], ["name"], EXACT)
    assert mine[BYTES].notna().all(axis=None) == OPTIONS[options].get("profile_memory", False)
    assert (natively["flops"] > 0).any() == OPTIONS[options].get("with_flops", False)
    print(f"{model}, {options}: {count} numbers equal")
    assert count > 400


@pytest.mark.parametrize("model", MODELS)
def test_shares_as_torch_prints_them(model: str, record: Record) -> None:
    """The percentages in ``table()`` are shares of the self time of all rows."""
    recording, printed = record(model, "plain"), {}
    for line in recording.printed.splitlines():
        cells = line.rsplit(maxsplit=6)
        if len(cells) == 7 and cells[1].endswith("%"):
            printed[cells[0].strip()] = (cells[1], cells[3])
    mine = operators.table(recording.trace, NATIVE).set_index("name")
    for name, row in mine.iterrows():
        assert printed[str(name)] == (f"{row['self_cpu_ratio']:.2%}", f"{row['total_cpu_ratio']:.2%}"), name
    print(f"{model}: {2 * len(mine)} printed shares equal")
    assert len(mine) > 20


@pytest.mark.parametrize("model", MODELS)
def test_with_stacks_only_ranges_that_overlap_differ(model: str, record: Record) -> None:
    """With stacks, frames and labels overlap without nesting. torch subtracts such children twice, but perfkit
    subtracts the union of the children. torch adds the times of a function that calls itself, but perfkit counts the
    outer call. So only self times and totals of such rows differ."""
    recording = record(model, "stacks")
    mine, theirs = ours(recording.trace, ViewRequest()), recording.averages["name"]
    operator_names = set(operators.table(recording.trace, ViewRequest())["name"])
    compare(mine[mine["name"].isin(operator_names)], theirs[theirs["name"].isin(operator_names)], ["name"])
    compare(mine, theirs, ["name"], ["calls"])
    mine, theirs = (table.groupby("name")[TIMES].sum().astype("int64") for table in (mine, theirs))
    assert (mine["total_cpu_ns"] <= theirs["total_cpu_ns"]).all()
    assert (mine["self_cpu_ns"] >= theirs["self_cpu_ns"]).all()
    assert (mine["self_cpu_ns"] >= 0).all()
    assert (theirs["self_cpu_ns"] < 0).any()


@pytest.mark.parametrize("model", MODELS)
def test_every_row_grouped_by_shape(model: str, record: Record) -> None:
    """For a list of tensors, perfkit records shapes and torch records []."""
    recording = record(model, "all")
    theirs = recording.averages["shape"]
    mine = ours(recording.trace, ViewRequest(by=("shape",)))
    mine["shapes"] = mine["shapes"].fillna("[]").map(_as_key_averages_prints)
    count = compare(mine, theirs[theirs["name"] != "[memory]"], ["name", "shapes"], EXACT)
    natively = ours(recording.trace, ViewRequest(by=("shape",), native=True))
    natively["shapes"] = natively["shapes"].fillna("[]")  # unknown in the row [memory]
    count += compare(natively, theirs, ["name", "shapes"])
    print(f"{model}, by shape: {count} numbers equal")
    assert count > 500


def _as_key_averages_prints(shapes: str) -> str:
    arguments = [[] if any(isinstance(size, list) for size in shape) else shape for shape in json.loads(shapes)]
    return json.dumps(arguments, separators=(",", ":"))


needs_overloads = pytest.mark.skipif(not OVERLOADS, reason="this torch records no overloads")


@needs_overloads
@pytest.mark.parametrize("model", MODELS)
def test_every_row_grouped_by_overload(model: str, record: Record) -> None:
    """If overloads were recorded, rows are merged over overloads by default, and separate on request."""
    recording = record(model, "all")
    theirs = recording.averages["overload"]
    assert {"Tensor", "out"} & set(theirs["overload"])
    mine = ours(recording.trace, ViewRequest(by=("overload",), native=True))
    mine["overload"] = mine["overload"].fillna("")
    print(f"{model}, by overload: {compare(mine, theirs, ['name', 'overload'])} numbers equal")


def _frames(stack: str, count: int) -> str:
    hidden = re.compile(r"autograd/__init__.*(?:backward|_make_grads)")
    return ";".join([frame for frame in stack.split(";") if not hidden.search(frame)][:count])


@pytest.mark.skipif(not FRAMES, reason="this torch records no frames of operators")
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("frames", [1, 4])
def test_operators_grouped_by_stack(model: str, frames: int, record: Record) -> None:
    """Every cell is equal, without the frames of autograd. torch gives backward operators the stack of a forward
    operator, but perfkit has the recorded stack."""
    recording = record(model, "stacks")
    theirs = recording.averages[f"{frames} frame{'s' * (frames > 1)}"]
    mine = operators.table(recording.trace, ViewRequest(by=("stack",), native=True))
    mine = mine[mine["name"] != "[memory]"].copy()
    mine["stack"] = [_frames(stack, frames) for stack in mine["stack"].fillna("")]
    count = compare(mine, theirs[theirs["name"].isin(mine["name"])], ["name", "stack"])
    own = operators.table(recording.trace, ViewRequest(by=("stack",))).set_index("name")["stack"]
    assert mine.set_index("name")["stack"].to_dict() != own.to_dict()
    assert count > 50
    print(f"{model}, by {frames} frames: {count} numbers equal")


@needs_overloads
def test_both_readers_of_a_live_profiler_read_the_overload(tmp_path: Path) -> None:
    """One of the readers is for versions of torch without trace_activities()."""
    from perfkit_torch import live_events

    names: list[set[str]] = []

    def read(profiler: Any) -> None:
        results = profiler.profiler.kineto_results
        for batches in (live_events.from_events(results, {}), live_events.from_activities(results, False)):
            found = [pair for batch in batches for pair in zip(batch.names, batch.categories, strict=True)]
            names.append({name for name, category in found if category == "cpu_op"})

    train("mlp", read, **OVERLOADS)
    assert "aten::add_.Tensor" in names[0]
    assert names[0] == names[1]


def covered(ranges: list[tuple[int, int]]) -> int:
    """Return the union of the ranges by its definition, range by range."""
    total, reach = 0, 0
    for start, end in sorted(ranges):
        total += max(0, end - max(start, reach))
        reach = max(reach, end)
    return total


@pytest.mark.parametrize("model", MODELS)
def test_overview_model_memcpy_device_equal_native_events(model: str, record: Record) -> None:
    """The expected numbers come from the profiler's event list. The list lacks re-dispatches, so calls differ, but
    times do not."""
    recording = record(model, "plain")
    trace, ranges = recording.trace, {}
    again = int((survivors(trace) != np.arange(len(trace))).sum())
    for event in recording.events:
        span = (round(event.time_range.start * 1000), round(event.time_range.end * 1000))
        ranges.setdefault(_native_kind(event), []).append(span)
    table = table_of(overview.VIEW, trace, ViewRequest()).set_index("kind")
    calls = {kind: len(spans) + again * (kind == "operator") for kind, spans in ranges.items()}
    assert table["calls"].to_dict() == calls
    assert again > 0
    assert table["time_ns"].to_dict() == {kind: covered(spans) for kind, spans in ranges.items()}
    phases = step_phases.table(trace, ViewRequest()).set_index("phase")
    inside = [(a, b) for a, b in ranges["optimizer"] if any(s <= a < e for s, e in ranges["step"])]
    assert len(inside) == 4
    updates = sum(event.name.startswith("Optimizer.step") for event in recording.events)
    assert phases.loc["optimizer", "calls"] == updates == 2, "zero_grad is no update"
    assert phases.loc["optimizer", "total_cpu_ns"] == sum(b - a for a, b in inside)
    assert phases.loc["step", "total_cpu_ns"] == sum(b - a for a, b in ranges["step"])
    assert table_of(kernels.MEMCPY_VIEW, trace, ViewRequest()).empty
    assert device.table(trace, ViewRequest()).empty
    print(f"{model}, overview and model: {2 * len(ranges) + 3} numbers equal")


def _native_kind(event: Any) -> str:
    """Return perfkit's kind of a native event from its flags and its name, as torch documents them."""
    if event.name.startswith("ProfilerStep"):
        return "step"
    if event.name.startswith("enumerate(DataLoader)"):
        return "dataloader"
    if event.name.startswith("Optimizer."):
        return "optimizer"
    return "annotation" if event.is_user_annotation else "operator"


def test_steps_equal_the_native_step_rows(record: Record) -> None:
    recording = record("mlp", "plain")
    table = table_of(steps.VIEW, recording.trace, ViewRequest())
    row = recording.averages["name"].set_index("name").loc["ProfilerStep*"]
    assert list(table["step"]) == [2, 3]
    assert table["dur_ns"].sum() == row["total_cpu_ns"]


def _forked(x: torch.Tensor) -> torch.Tensor:
    for _ in range(50):
        x = x @ x.sin()
    return x


def _forking(x: torch.Tensor) -> torch.Tensor:
    task = torch.jit.fork(_forked, x)
    y = x.cos()
    return torch.jit.wait(task) + y


@pytest.mark.filterwarnings("ignore:`torch.jit.*deprecated:DeprecationWarning")
def test_a_function_that_ends_on_another_thread(tmp_path: Path) -> None:
    """All times but the function's self time equal torch's. The trace does not say on which thread the function
    ended."""
    x, forking = torch.randn(64, 64), torch.jit.script(_forking)
    forking(x)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
        forking(x)
        time.sleep(0.2)  # the other thread ends its spans after the result is there
    theirs = native(profiler.key_averages()).set_index("name")[["calls", "self_cpu_ns", "total_cpu_ns"]]
    (event,) = (e for e in profiler.profiler.kineto_results.events() if e.name() == "_forking")
    profiler.export_chrome_trace(str(tmp_path / "trace.json"))
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    if any(e.get("args", {}).get("finished") is False for e in events):
        pytest.skip("the profiler stopped before a span ended")
    (written,) = (e for e in events if e["name"] == "_forking")
    assert set(written["args"]) <= {"External id", "Record function id", "Ev Idx", "Sequence number", "Fwd thread id"}
    mine = operators.table(load(tmp_path / "trace.json"), NATIVE).set_index("name")[list(theirs)]
    others = theirs.index.drop("_forking")
    different = mine.loc[others].astype("int64").compare(theirs.loc[others].astype("int64"))
    assert different.empty, different.to_string()
    assert mine.loc["_forking", "total_cpu_ns"] == theirs.loc["_forking", "total_cpu_ns"] == event.duration_ns()
    if event.start_thread_id() != event.end_thread_id():
        assert theirs.loc["_forking", "self_cpu_ns"] == 0
    assert mine.loc["_forking", "self_cpu_ns"] > 0
