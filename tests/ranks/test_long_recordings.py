"""Views of a recording that is computed part by part, compared with the views of the whole recording."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import perfkit_core
from perfkit_core.errors import UsageError
from perfkit_core.plugins.contracts import ViewRequest
from perfkit_core.plugins.manager import get_plugins
from perfkit_core.ranks import reduce
from perfkit_core.ranks.plan import Job, Partial
from perfkit_core.ranks.profile import LoadedProfile
from perfkit_core.trace.model.event_columns import OutsidePartError
from perfkit_core.trace.model.trace import Trace, concat_traces
from perfkit_core.trace.storage import store, writer
from perfkit_core.views.select import step_numbers
from tests.support.events import device, host, trace
from tests.support.paths import DATA

VIEWS = [view for view in get_plugins().views().values() if view.computed.in_parts]
RECORDINGS = ["torch-transformer-base", "torch-mlp-loader", "paddle-conv_net-base", "paddle-mlp-copy"]


def computed(recorded: Trace, request: ViewRequest) -> dict[str, pd.DataFrame]:
    """Return the tables of all views, or of those that the request groups."""
    views = [view for view in VIEWS if set(request.by) <= set(view.groupings)]
    return dict(LoadedProfile(recorded).compute(views, request).tables)


def parts_of(recorded: Trace, request: ViewRequest | None = None) -> list[Partial]:
    return reduce.reduce_parts(recorded, VIEWS, Job((), request or ViewRequest()))


def check_equal(recorded: Trace, rows: int, monkeypatch: pytest.MonkeyPatch) -> int:
    """Compare the tables of all views for several requests. Return the number of parts."""
    steps = step_numbers(recorded)
    groupings = sorted({grouping for view in VIEWS for grouping in view.groupings})
    requests = [ViewRequest(), ViewRequest(steps=steps[len(steps) // 2 :]), ViewRequest(pattern=".*a.*")]
    for request in requests + [ViewRequest(by=(grouping,)) for grouping in groupings]:
        monkeypatch.setattr(reduce, "PART_ROWS", len(recorded))
        whole = computed(recorded, request)
        monkeypatch.setattr(reduce, "PART_ROWS", rows)
        found = computed(recorded, request)
        for name, table in whole.items():
            if len(table) or len(found[name]):
                pd.testing.assert_frame_equal(found[name], table, obj=f"{name} {request}")
    return len(parts_of(recorded))


@pytest.mark.parametrize("name", RECORDINGS)
def test_tables_equal_those_of_the_whole_recording(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    recorded = perfkit_core.load(DATA / "examples" / f"{name}.perfkit.parquet")
    assert check_equal(recorded, len(recorded) // 7, monkeypatch) > 2


@pytest.mark.parametrize(
    "file", ["mi300x-bert-small.json.gz", "h100-vit.json.gz", "sampled-rank1.json.gz", "v100-ns-resolution.json.gz"]
)
def test_tables_of_devices_equal_those_of_the_whole_recording(
    traces: Path, file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded = perfkit_core.load(traces / "torch" / file)
    copies = concat_traces([_later(recorded, number) for number in range(4)])
    assert check_equal(copies, len(recorded) // 2, monkeypatch) > 2


def _later(recorded: Trace, number: int) -> Trace:
    """Return the recording at another time, with other steps."""
    start, end = recorded.ints("start_ns"), recorded.end_ns
    steps, known = recorded.ints("step"), recorded.ints("step") >= 0
    step = pa.array(steps + number * (int(steps.max()) + 1), pa.int64(), mask=~known)
    kind = recorded.events.schema.field("step").type
    return recorded.with_columns(
        start_ns=pa.array(start + number * int(end.max() - start.min() + 1000)), step=step.cast(kind)
    )


def test_default_summary_is_computed_in_parts() -> None:
    assert {"partition", "model", "device", "operators", "steps", "overview", "kernels"} <= {one.name for one in VIEWS}


def steps(count: int, *more: dict[str, Any], gap_ns: int = 10) -> list[dict[str, Any]]:
    """Return steps of 100 ns, each with an operator that launches a kernel."""
    events = list(more)
    for number in range(count):
        at = number * (100 + gap_ns)
        events += [
            host(f"Step#{number}", "step", at, 100, step=number),
            host("op", "operator", at + 5, 40),
            host("launch", "runtime", at + 10, 5, correlation=number),
            device("kernel", "kernel", at + 30, 20, correlation=number),
        ]
    return events


def in_phase(name: str, kind: str, at: int, dur: int, **more: Any) -> dict[str, Any]:
    return host(name, kind, at, dur, phase=kind, **more)


ONLY_IN_PARTS = {
    "phases": lambda k: [in_phase("forward", "forward", 1, 3)] if k >= 6 else [],
    "a kind of event": lambda k: [host("sync", "sync", 90, 3)] if k < 2 else [],
    "memory events": lambda k: [host("[memory]", "memory", 3, 0, bytes=8)] if k >= 6 else [],
    "updates of gradients that are cleared in an earlier step": lambda k: (
        [in_phase("Optimizer.zero_grad#SGD", "optimizer", 1, 3)] * (k % 4 == 0)
        + [in_phase("Optimizer.step#SGD", "optimizer", 80, 10)] * (k % 4 == 3)
    ),
    "a second thread with steps": lambda k: [
        in_phase("DataLoader", "dataloader", 1, 3, tid=2),
        *([host("Step#100", "step", 70, 10, tid=2, step=100)] if k == 6 else []),
    ],
    "arguments that determine FLOPs": lambda k: [
        host("strange", "operator", 60, 3, flops=7, shapes="[]"),
        *([host("aten::mm", "operator", 66, 3, flops=12, shapes="[[2, 3], [3, 2]]")] if k >= 6 else []),
    ],
    "work launched outside operators": lambda k: (
        [host("launch", "runtime", 60, 2, correlation=900), device("k2", "kernel", 75, 3, correlation=900)]
        if k == 6
        else []
    ),
    "work without a launch": lambda k: [device("lost", "kernel", 80, 3)] if k < 2 else [],
    "another device": lambda k: [device("k2", "kernel", 80, 3) | {"device": "cuda:1"}] if k >= 6 else [],
    "work without a device": lambda k: [device("k2", "kernel", 80, 3) | {"device": None}] if k >= 6 else [],
}


@pytest.mark.parametrize("name", ONLY_IN_PARTS)
def test_what_only_some_parts_have_does_not_matter(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    more = [
        event | {"start_ns": event["start_ns"] + 110 * number}
        for number in range(8)
        for event in ONLY_IN_PARTS[name](number)
    ]
    check_equal(trace(steps(8, *more)), 10, monkeypatch)


@pytest.mark.parametrize("numbers", [[7, 6, 5, 4, 3, 2, 1, 0], [0, 1, 2, 3, 0, 1, 2, 3], [0, 0, 1, 1, 2, 2, 3, 3]])
def test_step_numbers_may_be_in_any_order(numbers: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    events = [event | {"step": numbers[event["step"]]} if "step" in event else event for event in steps(8)]
    check_equal(trace(events), 10, monkeypatch)


def test_work_of_another_step_counts_in_the_chosen_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """The copy that step 0 launches runs in step 1, and the copy of step 5 in step 5."""
    more = [
        event
        for number, at in ((0, 130), (5, 620))
        for event in (
            host("copy", "runtime", 110 * number + 60, 2, correlation=100 + number),
            device("copy", "memcpy", at, 5, correlation=100 + number),
        )
    ]
    recorded = trace(steps(8, *more))
    monkeypatch.setattr(reduce, "PART_ROWS", 16)
    found = computed(recorded, ViewRequest(steps=(1, 5)))["overview"].set_index("kind")
    assert found.loc["memcpy", "ratio"] == pytest.approx(10 / 200)
    assert len(parts_of(recorded)) == 2


def test_a_tail_without_steps_belongs_to_the_last_part(monkeypatch: pytest.MonkeyPatch) -> None:
    tail = [host("save", "operator", 1200 + 10 * number, 5) for number in range(25)]
    recorded = trace(steps(10, *tail))
    assert check_equal(recorded, 10, monkeypatch) > 2
    assert parts_of(recorded)[-1].facts.events > 25


@pytest.fixture
def short_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reduce, "PART_ROWS", 10)


@pytest.mark.usefixtures("short_parts")
def test_a_part_ends_with_a_step() -> None:
    assert [partial.facts.steps for partial in parts_of(trace(steps(7)))] == [(0, 1), (2, 3), (4, 5, 6)]


@pytest.mark.usefixtures("short_parts")
@pytest.mark.parametrize(
    "more",
    [
        host("epoch", "annotation", 0, 770),
        device("memory", "kernel", 0, 770),
    ],
    ids=["a range", "a kernel"],
)
def test_what_runs_all_the_time_keeps_the_recording_whole(more: dict[str, Any]) -> None:
    assert parts_of(trace(steps(7, more))) == []


def test_no_part_begins_between_a_launch_and_its_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """The launch at the end of step 8 has its work at the beginning of step 9. The part has two more steps."""
    late = [host("launch", "runtime", 975, 5, correlation=90), device("late", "kernel", 992, 3, correlation=90)]
    monkeypatch.setattr(reduce, "PART_ROWS", 42)
    of_parts = [partial.facts.steps for partial in parts_of(trace(steps(30, *late)))]
    assert [numbers[0] for numbers in of_parts] == [0, 8, 17]
    monkeypatch.setattr(reduce, "PART_ROWS", 38)
    monkeypatch.setattr(reduce, "_UNCUT", 100)  # the work is not read with the first part
    assert parts_of(trace(steps(30, *late))) == []


@pytest.mark.usefixtures("short_parts")
def test_steps_without_a_gap_are_not_divided() -> None:
    assert parts_of(trace(steps(7, gap_ns=0))) == []


@pytest.mark.usefixtures("short_parts")
def test_recordings_without_steps_or_shorter_than_two_parts_are_whole() -> None:
    assert parts_of(trace([event for event in steps(7) if event["kind"] != "step"])) == []
    assert parts_of(trace(steps(4))) == []


@pytest.mark.usefixtures("short_parts")
def test_a_step_that_no_part_has_is_an_error() -> None:
    recorded = trace(steps(7))
    assert computed(recorded, ViewRequest(steps=(5,)))["steps"]["step"].tolist() == [5]
    with pytest.raises(UsageError, match="step 7 was not recorded"):
        computed(recorded, ViewRequest(steps=(7,)))


@pytest.mark.usefixtures("short_parts")
def test_a_stored_parent_outside_its_part_does_not_matter(tmp_path: Path) -> None:
    """A file of another program may contain any earlier row as a parent."""
    recorded = trace(steps(7))
    parents = recorded.ints("parent").copy()
    parents[np.flatnonzero(recorded.rows("name", "op"))[4]] = 0
    path = store.write_cycle(recorded.with_columns(parent=pa.array(parents)), tmp_path)
    stored = perfkit_core.load(path)
    assert parts_of(stored) == []
    assert len(computed(stored, ViewRequest())["operators"]) == 1
    with pytest.raises(OutsidePartError):
        stored.part(16, 20).ints("parent")


def test_a_part_has_the_rows_of_the_table(tmp_path: Path) -> None:
    """The row groups have 8 rows."""
    recorded = trace(steps(7))
    path = store.write_cycle(recorded, tmp_path)
    table = pq.read_table(path)
    with path.open("wb") as file:
        writer.write(table, file, 8, {})
    stored = perfkit_core.load(path)
    stored.ints("dur_ns"), stored.codes("name")
    for whole in (recorded, stored, concat_traces([recorded, stored])):
        for first, end in ((0, 4), (4, 12), (8, 28), (20, 20)):
            part, rows = whole.part(first, end), whole.events.slice(first, end - first)
            for name in ("start_ns", "dur_ns", "name", "stack", "step"):
                assert part.column(name).to_pylist() == rows[name].to_pylist(), name
            assert part.ints("dur_ns").tolist() == rows["dur_ns"].to_pylist()
            assert [part.codes("name").values[code] for code in part.codes("name").codes] == rows["name"].to_pylist()
            for name in ("parent", "launched_by"):
                own = [row - first if row >= 0 else -1 for row in rows[name].to_pylist()]
                assert part.ints(name).tolist() == own, name
            assert part.pick("name", np.arange(end - first)[::-1]).to_pylist() == rows["name"].to_pylist()[::-1]
