"""The critical path of traces made by hand, and its exactness on real traces."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pandas as pd
import pytest

from perfkit_core.advice.engine import advise
from perfkit_core.advice.predict import predict
from perfkit_core.advice.rule_input import Candidate, NotEvaluableError, RuleInput
from perfkit_core.advice.text import replayed
from perfkit_core.base.algorithms.arrays import IntArray
from perfkit_core.base.language.messages import message
from perfkit_core.plugins.contracts import ViewRequest
from perfkit_core.readers.load import load
from perfkit_core.replay import build
from perfkit_core.replay import critical_path as view
from perfkit_core.replay.device_work import DeviceWork
from perfkit_core.replay.graph import QUEUE, Waits, edges, play
from perfkit_core.replay.host_segments import Segments
from perfkit_core.replay.transforms import Quantity, Scale
from perfkit_core.replay.waits import RETURN_NS
from perfkit_core.trace.model.trace import Trace
from perfkit_core.views.merging import table_of
from tests.support.events import device, host, trace

MS = 1_000_000


def waiting_step() -> Trace:
    """A step of 10 ms that launches a long and a short kernel on two streams, and waits for both."""
    return trace([
        host("step", "step", 0, 10 * MS, step=1),
        host("aten::mm", "operator", 1 * MS, 1 * MS),
        host("cudaLaunchKernel", "runtime", MS + 200_000, 300_000, correlation=1),
        host("aten::add", "operator", 2 * MS + 500_000, 500_000),
        host("cudaLaunchKernel", "runtime", 2 * MS + 600_000, 200_000, correlation=2),
        host("cudaDeviceSynchronize", "sync", 3 * MS + 500_000, 6 * MS, correlation=3),
        device("long", "kernel", 2 * MS, 7 * MS + 300_000, 1),
        device("short", "kernel", 3 * MS, 1 * MS, 2, stream=8),
    ])  # fmt: skip


def rows(table: pd.DataFrame) -> dict[tuple[str, str], Any]:
    """Return the leaves of the tree by the names of their root and their own."""
    root = table["name"].where(table["depth"] == 0).ffill()
    leaves = table[table["depth"] == 2]
    return {(root[row], leaves.loc[row, "name"]): leaves.loc[row] for row in leaves.index}


def test_a_replay_that_cannot_be_played_names_the_events(monkeypatch: pytest.MonkeyPatch) -> None:
    """A wrong edge makes a launch wait for its own kernel. Rules that need no replay still give advice."""

    def wrong(recorded: Trace, work: DeviceWork, segments: Segments, nodes: IntArray) -> Waits:
        call = recorded.ints("launched_by")[work.row[:1]]
        none = np.empty(0, np.int64)
        return Waits(none, none, edges(QUEUE, nodes[:1], segments.first[call]))

    monkeypatch.setattr(build, "queue_limits", wrong)
    recorded = waiting_step()
    assert table_of(view.VIEW, recorded, ViewRequest()).empty
    text = str(view.VIEW.explain_empty(recorded))
    assert "cudaLaunchKernel (launch latency), long (launch queue full)" in text
    assert view.marks(recorded) == {}
    facts = RuleInput(recorded)
    what = message("it waits")
    rows = np.arange(1)
    with pytest.raises(NotEvaluableError, match="cannot be played"):
        predict(facts, Candidate(what, {}, rows, transforms=(Scale(rows, 0.5),)))
    prior = predict(facts, Candidate(what, {}, rows, method="prior", after_ns=Quantity(MS, 2 * MS, 3 * MS, what)))
    assert (prior.base_ns, prior.p50_ns) == (10 * MS, 2 * MS)
    advices = advise(recorded)
    assert advices.identity.error is None
    assert "launch queue full" in str(replayed(advices.identity, "step"))


def test_a_step_that_waits_for_the_device_consists_of_the_long_kernel() -> None:
    table = table_of(view.VIEW, waiting_step(), ViewRequest())
    found = rows(table)
    assert table.loc[0, ["name", "time_ns", "ratio"]].tolist() == [view.PATH, 10 * MS, 1.0]
    assert found[view.PATH, "long"]["time_ns"] == 7 * MS + 300_000
    assert (view.PATH, "short") not in found
    assert found[view.PATH, "long"]["ratio"] == pytest.approx(0.73)
    # Before the kernel: the time until its launch begins, and until it starts. After it: the rest of the step.
    on_host = sum(row["time_ns"] for (root, name), row in found.items() if root == view.PATH and name != "long")
    assert on_host == 3 * MS - 300_000


def test_work_off_the_path_has_slack() -> None:
    (short,) = (
        row for (root, name), row in rows(table_of(view.VIEW, waiting_step(), ViewRequest())).items() if name == "short"
    )
    assert short["time_ns"] == 1 * MS
    # It ends at 4 ms. The call that waits for it returns at 9.5 ms, at least RETURN_NS after the end of the work.
    assert short["slack_ns"] == 5 * MS + 500_000 - RETURN_NS


def test_a_wait_for_work_without_a_launch_is_named() -> None:
    """The call waits for kernels whose launches were not recorded. Only its own kernel has a launch, and ends early."""
    found = rows(table_of(view.VIEW, trace([
        host("step", "step", 0, 1000_000, step=1),
        host("cudaLaunchKernel", "runtime", 10_000, 10_000, correlation=1),
        host("cudaDeviceSynchronize", "sync", 100_000, 800_000, correlation=3),
        device("own", "kernel", 30_000, 170_000, 1),
        device("lost", "kernel", 202_000, 300_000),
        device("lost", "kernel", 503_000, 100_000),
        device("lost", "kernel", 703_000, 177_000),  # after an idle time of 100 µs
        device("later", "kernel", 890_000, 50_000, stream=8),  # the call does not wait for it
    ]), ViewRequest()))  # fmt: skip
    waits = {name: row["time_ns"] for (root, name), row in found.items() if root == view.PATH}
    # from 200 µs to 603 µs, and from 20 µs before the last kernel to its end
    assert waits["wait for device work without a recorded launch"] == 403_000 + 197_000
    assert waits["return from synchronisation"] == 80_000 + 20_000


@pytest.mark.parametrize("name", ["h100-qwen05b", "mi300x-qwen05b"])
def test_a_real_wait_for_work_without_a_launch_is_no_return(name: str, traces: Path) -> None:
    """In both recordings, the host first waits for the kernels of the previous step, whose launches are missing."""
    found = rows(table_of(view.VIEW, load(traces / f"torch/{name}.json.gz"), ViewRequest()))
    events = msgspec.json.decode(gzip.decompress((traces / f"torch/{name}.json.gz").read_bytes()))["traceEvents"]
    calls = [event for event in events if event.get("cat") == "cuda_runtime"]
    launches = {event["args"].get("correlation") for event in calls}
    sync = next(event for event in calls if event["name"].endswith("DeviceSynchronize"))
    ends = sync["ts"] + sync["dur"]
    lost_us = sum(
        event["dur"] for event in events
        if event.get("cat") == "kernel" and event["args"].get("correlation") not in launches
        and sync["ts"] <= event["ts"] and event["ts"] + event["dur"] <= ends
    )  # fmt: skip
    wait_ns = found[view.PATH, "wait for device work without a recorded launch"]["time_ns"]
    assert lost_us * 1000 < wait_ns < sync["dur"] * 1000
    assert found[view.PATH, "return from synchronisation"]["time_ns"] < 0.002 * wait_ns


def test_a_step_on_the_host_consists_of_its_operators() -> None:
    only = trace([host("step", "step", 0, 1000, step=1), host("aten::mm", "operator", 100, 700)])
    found = rows(table_of(view.VIEW, only, ViewRequest()))
    assert {name: row["time_ns"] for (_, name), row in found.items()} == {"aten::mm": 700, "step": 300}


def test_steps_and_ranks_are_kept_apart_on_request() -> None:
    two = trace([
        host("step", "step", 0, 1000, step=1), host("step", "step", 1000, 3000, step=2),
        host("aten::mm", "operator", 1500, 2000),
    ])  # fmt: skip
    table = table_of(view.VIEW, two, ViewRequest(by=("step",)))
    roots = table[table["depth"] == 0]
    assert dict(zip(roots["step"], roots["time_ns"], strict=True)) == {1: 1000, 2: 3000}
    chosen = table_of(view.VIEW, two, ViewRequest(steps=(2,)))
    assert chosen["time_ns"].iloc[0] == 3000


@pytest.mark.parametrize(
    "name",
    ["torch/h100-qwen05b.json.gz", "torch/v100-ns-resolution.json.gz", "torch/cpu-only-rank34.json.gz",
     "torch/mi300x-resnet-act-checkpoint-steps.json.gz", "paddle/gpu-synthetic/gpu1.pb",
     "torch/a100-nccl-process-groups.json.gz"],
)  # fmt: skip
def test_the_parts_add_up_to_each_step_and_have_no_slack(name: str, traces: Path) -> None:
    recording = load(traces / name)
    steps, path = view.critical_path(recording)
    replay = view.replay_of(recording)
    total = np.zeros(len(steps), np.int64)
    np.add.at(total, path.step, path.time_ns)
    starts = replay.graph.start_ns
    assert total.tolist() == (starts[steps.after] - starts[steps.first]).tolist()
    assert (view.slack(replay, steps)[path.node[path.node >= 0]] == 0).all()


def test_longer_work_off_the_path_delays_the_step_only_beyond_its_slack() -> None:
    recording = waiting_step()
    replay, (steps, _) = view.replay_of(recording), view.critical_path(recording)
    node = replay.work[recording.codes("name").rows("short")][0]
    slack = 5 * MS + 500_000 - RETURN_NS
    for more, later in ((slack, 0), (slack + 700, 700)):
        longer = replay.graph.dur_ns.copy()
        longer[node] += more
        played = play(view.replace(replay.graph, dur_ns=longer))
        assert steps.played_ns(played).tolist() == [10 * MS + later]
