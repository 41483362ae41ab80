"""The categories of memory. The expected bytes are worked out by hand."""

from __future__ import annotations

import itertools
import math
from pathlib import Path
from typing import Any

import pytest

from perfkit_core.api import summarize
from perfkit_core.output.report import pictures
from perfkit_core.readers.load import load
from perfkit_core.trace.model import architecture
from perfkit_core.trace.model.architecture import Architecture, Layer, Parameter
from perfkit_core.trace.model.schema import NESTED_KINDS
from perfkit_core.trace.model.trace import Trace
from tests.support.events import host, trace
from tests.support.tables import check_tables, view_table

KEPT = 10**9


def mem(start: int, change: int, address: int, total: int | None = None) -> dict[str, Any]:
    place = {"bytes": change, "address": address, "total_bytes": total, "device": "cpu", "pid": 1, "tid": 1}
    return {"name": "[memory]", "kind": "memory", "start_ns": start, "dur_ns": 0, **place}


def step(number: int, first: int) -> list[dict[str, Any]]:
    """Return the events of a step of 1000 ns. Addresses begin at ``first``. Blocks of the names below have these bytes:
    activation 100, loss 1, temporary 30, workspace 50, gradients 400 and 80, and batch 7."""
    at = 1000 * number
    return [
        host(f"step {number}", "step", at, 990, step=number),
        host("load", "dataloader", at + 5, 20, phase="dataloader"),
        mem(at + 10, 7, first),
        host("net", "forward", at + 100, 200, phase="forward"),
        host("conv", "operator", at + 110, 50, op_name="conv"),
        mem(at + 120, 50, first + 1), mem(at + 130, 100, first + 2), mem(at + 150, -50, first + 1),
        mem(at + 200, 30, first + 3), mem(at + 290, -30, first + 3),
        host("loss", "operator", at + 320, 10),  # between forward and backward
        mem(at + 325, 1, first + 4),
        host("back", "operator", at + 400, 200, phase="backward"),
        mem(at + 410, 400, first + 5), mem(at + 420, 80, first + 6), mem(at + 430, 30, first + 7),
        mem(at + 440, -100, first + 2), mem(at + 450, -30, first + 7),
        host("Adam.step", "optimizer", at + 700, 100, phase="optimizer"),
        mem(at + 710, 60, first + 8), mem(at + 720, -60, first + 8),
        mem(at + 900, -400, first + 5), mem(at + 910, -80, first + 6), mem(at + 920, -1, first + 4),
        mem(at + 930, -7, first),
    ]  # fmt: skip


def with_totals(rows: list[dict[str, Any]], before: int) -> list[dict[str, Any]]:
    total = before
    for row in sorted((row for row in rows if row["kind"] == "memory"), key=lambda row: row["start_ns"]):
        total += row["bytes"]
        row["total_bytes"] = total
    return rows


def made(rows: list[dict[str, Any]]) -> Trace:
    return trace(rows, names=lambda name: name if name == "conv" else None)


def with_model(found: Trace, *parameters: Parameter) -> Trace:
    layer = Layer(path="", class_name="Net", device="cpu", parameters=parameters)
    return found.with_meta(extra=architecture.to_extra([Architecture("Net", "fw", (layer,))]))


def test_categories_of_small_trainings() -> None:
    """The peak is in the backward pass, when both gradients, the activation, the loss and a temporary are allocated.
    The phase and the life of a block decide.

    - With gradient accumulation, the second batch is allocated between backward and forward, and the norm of clipping
      between backward and update.
    - A parameter of 480 bytes would be rounded up to 512 by an allocator of a device, but not by one that allocates a
      loss of 4 bytes."""
    accumulation = [
        mem(5, 7, 1),
        host("net", "forward", 100, 100, phase="forward"),
        host("back", "operator", 300, 100, phase="backward"), mem(310, 400, 2),
        mem(450, 7, 3), mem(460, -7, 1),
        host("net", "forward", 500, 100, phase="forward"),
        host("back", "operator", 700, 100, phase="backward"), mem(710, 30, 4), mem(720, -30, 4),
        mem(850, 4, 5),
        host("SGD.step", "optimizer", 900, 50, phase="optimizer"),
        mem(960, 1000, 6), mem(970, -1000, 6), mem(980, -400, 2), mem(985, -7, 3), mem(990, -4, 5),
    ]  # fmt: skip
    two = [*step(0, 1), *step(1, 100)]
    parameters = [mem(-50 + number, size, KEPT + number) for number, size in enumerate((400, 80, 5))]
    states = [mem(705, size, KEPT + 10 + number) for number, size in enumerate((400, 400, 80, 80))]
    freed = [mem(460, -400, KEPT), mem(470, -80, KEPT + 1)]
    sizes = [Parameter(name=str(n), shape=(n,), dtype="int8", bytes=n) for n in (200, 400, 80)]
    labels = [mem(50, 512, KEPT), host("net", "forward", 100, 200, phase="forward"), mem(110, 4, 1)]
    rounded = [row | {"bytes": 512} if row.get("bytes") == 4 else row for row in labels]
    weight = Parameter(name="w", shape=(120,), dtype="float32", bytes=480)
    growing = [
        row for number in range(3) for row in [*step(number, 100 * number), mem(1000 * number + 210, 11, KEPT + number)]
    ]
    batches = [row for number in range(4) for row in step(number, 100 * number) if row.get("bytes") != -7]
    batches += [mem(1000 * number + 30, -7, 100 * number - 100) for number in range(1, 4)]
    leaks = [mem(1000 * number + 15, 9, KEPT + number) for number in range(4)]
    higher = [*two, mem(1415, 1000, KEPT)]
    cases = {
        "two steps": made(two),
        "one step has no growth": made(step(0, 1)),
        "the next micro-batch of gradient accumulation is an input": made(accumulation),
        "workspace is freed within the operator": made([row for row in step(0, 1) if row["start_ns"] < 300]),
        "parameters before the first step, 5 bytes that nothing explains, and two states of each in the first update":
            made([*parameters, *states, *two]),
        "before the recording: parameters, two states of each, gradients that are freed later, and 20 bytes":
            made(with_totals([*freed, *two], 480 * 4 + 20)),
        "too little memory for the states is unknown": made(with_totals(step(0, 1), 480 + 100)),
        "the recorded model has a parameter of 200 bytes that is not trained":
            with_model(made(with_totals(step(0, 1), 900)), *sizes),
        "without the model": made(with_totals(step(0, 1), 900)),
        "each step leaves 11 bytes of the forward pass": made(growing),
        "each batch is freed when the next one has been loaded: the last batch is an input, too": made(batches),
        "a block of another size that each step leaves is unknown memory that grows": made([*batches, *leaks]),
        "labels of 512 bytes that are never freed are not taken for a parameter of 480 bytes":
            with_model(made(labels), weight),
        "an allocator that rounds": with_model(made(rounded), weight),
        "a second step with a higher peak": made(higher),
    }  # fmt: skip
    tables = {name: view_table("memory_categories", found) for name, found in cases.items()}
    tables["the first of these steps"] = view_table("memory_categories", made(higher), steps=(0,))
    check_tables("views/memory_categories.txt", tables)


REAL = ("torch/h100-vit.json.gz", "torch/h100-qwen05b.json.gz", "paddle/cpu-3.3.1/mlp_medium_mem/cycle0.pb.gz",
        "paddle/cpu-3.3.1/to_static/cycle0.pb")  # fmt: skip


LASTING = {"forward": "activations", "backward": "gradients", "optimizer": "optimizer_states"}


def at_the_peak(found: Trace, device: str) -> tuple[dict[str, tuple[int, int]], int]:
    """Return blocks and bytes of each group of categories at the peak of a device, and all bytes, by a walk over the
    recorded events. Blocks from before the recording only count in all bytes."""
    columns = ["kind", "start_ns", "device", "phase", "parent", "address", "bytes", "total_bytes"]
    events = found.events.select(columns).to_pylist()
    host = [event for event in events if event["kind"] == "memory" or event["device"] == "cpu"]
    marks = [event for event in host if event["phase"] in LASTING and event["kind"] in ("memory", *NESTED_KINDS)]
    changes = [next(run) for _, run in itertools.groupby(marks, lambda event: event["phase"])]
    blocks, live, totals = [], {}, []
    for event in events:
        if event["kind"] != "memory" or event["device"] != device:
            continue
        if event["bytes"] > 0:
            block = live[event["address"]] = {"event": event, "from": len(totals), "to": math.inf, "end_ns": math.inf}
            blocks.append(block)
        elif event["address"] in live:
            live.pop(event["address"]).update(to=len(totals), end_ns=event["start_ns"])
        totals.append(event["total_bytes"])
    groups: dict[str, tuple[int, int]] = {}
    for block in blocks:
        if not block["from"] <= totals.index(max(totals)) < block["to"]:
            continue
        event = block["event"]
        phases = [event["phase"], events[event["parent"]]["phase"] if event["parent"] >= 0 else None]
        phases += [change["phase"] for change in changes if change["start_ns"] <= event["start_ns"]][-1:]
        phase = next((phase for phase in phases if phase in LASTING), None)
        following = [change["start_ns"] for change in changes if change["start_ns"] > event["start_ns"]]
        lasting = block["end_ns"] >= min(following, default=math.inf)
        group = LASTING.get(str(phase), "other") if lasting else "short"
        count, size = groups.get(group, (0, 0))
        groups[group] = count + 1, size + event["bytes"]
    return groups, max(totals)


@pytest.mark.parametrize("name", REAL)
def test_blocks_of_real_recordings_are_those_of_a_walk(traces: Path, name: str) -> None:
    found = load(traces / name)
    for device, rows in summarize(found, "memory_categories").groupby("device", observed=True):
        expected, total = at_the_peak(found, str(device))
        short = rows["category"].isin(["temporaries", "workspace"])
        group = rows["category"].mask(short, "short").mask(~short & ~rows["category"].isin(LASTING.values()), "other")
        mine = rows.assign(blocks=rows["blocks"].fillna(0)).groupby(group)[["blocks", "bytes"]].sum()
        assert {key: count for key, count in mine["blocks"].items() if count} == {
            key: count for key, (count, _) in expected.items()
        }
        for key in ("short", "activations"):  # no memory from before the recording
            assert mine["bytes"].get(key, 0) == expected.get(key, (0, 0))[1]
        assert rows["bytes"].sum() == total


@pytest.mark.parametrize("name", REAL)
def test_the_picture_has_the_recorded_peak(traces: Path, name: str) -> None:
    found = load(traces / name)
    picture = pictures.category_section(found).table
    assert picture.drop(columns="time_ns").sum(axis=1).max() == found.events["total_bytes"].to_pandas().max()


def test_the_picture_shows_the_moment_with_most_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """The intervals end at 300, 600 and 900 ns."""
    monkeypatch.setattr(pictures, "STRETCHES", 3)
    section = pictures.category_section(
        made([mem(0, 5, KEPT), *step(0, 1), mem(900, 1, KEPT + 1), mem(901, -1, KEPT + 1)])
    )
    assert section.chart is not None
    assert section.table.columns.tolist()[1:] == list(section.chart.y)
    first, second, _ = section.table.to_dict("records")
    assert (first["workspace_bytes"], first["activations_bytes"], first["inputs_bytes"]) == (50, 100, 7)
    assert (second["gradients_bytes"], second["temporaries_bytes"]) == (480, 30)


def test_times_that_do_not_ascend_do_not_fail() -> None:
    """perfkit does not check the order of starts in a stored run, which may be damaged."""
    found = made([mem(0, 5, KEPT), *step(0, 1), mem(900, 1, KEPT + 1), mem(901, -1, KEPT + 1)])
    damaged = found.with_ints(start_ns=found.ints("start_ns")[::-1].copy())
    assert len(pictures.category_section(damaged).table) == pictures.STRETCHES
