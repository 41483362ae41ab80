"""Launch calls and graph replays whose device work was not recorded are found, counted and named. The steps in which
they lie have no shares of device time, no verdict and no advice."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from perfkit_core import load, summarize
from perfkit_core.advice.engine import advise
from perfkit_core.output.report.display import Display
from perfkit_core.output.report.summary import choose_views, summary_report
from perfkit_core.plugins.contracts import ViewRequest
from perfkit_core.ranks.profile import LoadedProfile
from perfkit_core.trace.assembly.chosen_steps import with_steps_on
from perfkit_core.trace.assembly.implausible_times import OVERLONG
from perfkit_core.trace.assembly.lost_records import CUT_OFF, DROPPED, INCOMPLETE_REPLAYS, LOST, incomplete_steps
from perfkit_core.trace.model import schema
from perfkit_core.trace.model.meta import OPERATORS_LEFT_OUT
from perfkit_core.trace.model.trace import Trace, concat_traces
from perfkit_core.trace.storage.store import write_trace
from tests.support import chrome
from tests.support.events import codes, device, host, trace
from tests.support.golden import check_golden
from tests.support.nsys import Export
from tests.support.server_trace import decode_and_prefill
from tests.support.tables import check_tables

STEP, LAUNCHES, EVERY, LAG, KERNEL = 990_000, 4, 200_000, 15_000, 150_000


def steps(lost: set[int], count: int = 4, call: str = "cudaLaunchKernel", **of_lost: Any) -> list[dict[str, Any]]:
    """Steps of four launches. The kernels with the correlation ids ``lost`` are missing, or have the kind and times
    ``of_lost``."""
    rows = []
    for step in range(count):
        begin = 1_000_000 * step
        rows.append(host(f"step#{step}", "step", begin, STEP, step=step))
        for at in range(LAUNCHES):
            correlation, start = step * LAUNCHES + at + 1, begin + 20_000 + EVERY * at
            rows += [
                host(f"aten::op{at}", "operator", start, 100_000),
                host(call, "runtime", start + 20_000, 10_000, correlation=correlation),
            ]
            kernel = device(f"kernel_{at}", "kernel", start + 20_000 + LAG, KERNEL, correlation)
            if correlation not in lost or of_lost:
                rows.append(kernel | (of_lost if correlation in lost else {}))
    return rows


def finding(found: Trace, code: str = LOST) -> str:
    return next((each.message for each in found.quality if each.code == code), "")


def incomplete(found: Trace) -> list[int]:
    return [int(number) for number in found.ints("step")[incomplete_steps(found)]]


def verdict(found: Trace) -> str:
    report = summary_report(LoadedProfile(found), choose_views(["partition"]), ViewRequest(), brief=True)
    return " ".join(map(str, report.headline))


HEAD = set(range(1, 7))


@pytest.mark.parametrize("call", ["cudaLaunchKernel", "cudaLaunchKernel_v7000", "hipExtModuleLaunchKernel",
                                  "cuLaunchKernelEx", "cudaMemcpyAsync", "zeCommandListAppendLaunchKernel",
                                  "someLaunch"])  # fmt: skip
def test_lost_launches_of_any_call(call: str) -> None:
    """A call with an unknown name is a launch call if most of its calls have device work."""
    found = trace(steps(HEAD, call=call))
    assert finding(found).startswith(f"6 of 16 launch calls have no device work ({call}: 6), in steps 0 and 1: ")
    assert incomplete(found) == [0, 1]


def test_only_complete_steps_count() -> None:
    """The kernels of the first six of 16 launches are lost. In the other two of four steps, the device is busy for 600
    of 990 µs. Counts and times without a denominator are those that were recorded."""
    found = trace(steps(HEAD))
    check_tables("trace/incomplete_steps.txt", {
        name: summarize(found, name) for name in ("partition", "device", "overview", "steps")
    })  # fmt: skip
    assert "Only 2 of 4 steps count" in verdict(found)


def test_advice_uses_complete_steps_only() -> None:
    """The device is busy for 60.6% of the complete steps, so that it is not called idle. With the incomplete steps, it
    would be busy for 37.9%."""
    advices = advise(trace(steps(HEAD)))
    assert "low-device-utilisation" not in {one.rule for one in advices.advice}
    assert advices.trace is not None
    assert set(advices.trace.ints("step").tolist()) == {-1, 2, 3}


def test_no_verdict_and_no_advice_without_complete_steps() -> None:
    """Each step lacks a kernel in its middle."""
    found = trace(steps({2, 6, 10, 14}))
    assert summarize(found, "partition").empty
    assert summarize(found, "device")["utilisation_ratio"].isna().all()
    assert summarize(found, "device")["kernels"].tolist() == [12]
    assert verdict(found).startswith("Cannot tell")
    advices = advise(found)
    assert not advices.advice
    assert not advices.without_saving
    assert {str(reason) for reason in advices.not_evaluable.values()} == {
        "the device work of no step was recorded completely: record fewer steps, so that the buffers of the profiler "
        "do not overflow"
    }


def test_without_steps_nothing_is_said_about_idle_devices() -> None:
    found = trace([row for row in steps({3}) if row["kind"] != "step"])
    assert summarize(found, "device")["utilisation_ratio"].isna().all()
    assert summarize(found, "overview")["ratio"].isna().all()
    assert verdict(found).startswith("Cannot tell")
    assert not advise(found).advice


def test_a_rank_without_complete_steps_is_left_out_of_comparisons() -> None:
    found = concat_traces([trace(steps({1}), rank=0), trace(steps({2, 6, 10, 14}), rank=1)])
    ranks = summarize(found, "ranks")
    assert ranks["own_time_ns"].notna().tolist() == [False, True, True, True, False, False, False, False]
    assert "Only 3 of 8 steps count" in verdict(found)


def test_chosen_steps_are_judged_by_themselves(tmp_path: Path) -> None:
    """Of the chosen steps, one of four contains the lost launch. The same holds for a stored run."""
    rows = [{**row, "kind": "annotation", "name": "work"} if row["kind"] == "step" else row for row in steps({3})]
    found = with_steps_on(trace(rows), "work")
    assert finding(found).endswith("1 of 4 steps are incomplete, so how long devices are idle in them is unknown")
    write_trace(found, tmp_path / "run.parquet")
    stored = load(tmp_path / "run.parquet")
    assert incomplete(stored) == incomplete(found) == [0]
    assert finding(stored) == finding(found)


def replays(*nodes: list[str], step_ns: int = 1_000_000, pace: int = 10_000, **more: Any) -> Trace:
    """One replay of a graph in each step, with the nodes in these places ("" is a node without a record)."""
    rows = []
    for step, names in enumerate(nodes):
        begin = step * step_ns
        rows += [
            host(f"step#{step}", "step", begin, step_ns - 1000, step=step),
            host("CompiledFunction", "operator", begin + 10_000, 50_000),
            host("cudaGraphLaunch", "runtime", begin + 20_000, 5_000, correlation=step),
        ]
        for at, name in enumerate(names):
            kind, dur = ("memset", 2_000) if name == "Memset" else ("kernel", pace)
            if name:
                rows.append(device(name, kind, begin + 40_000 + at * pace, dur, step, **more))
    return trace(rows)


def late(rows: list[dict[str, Any]], by: int) -> list[dict[str, Any]]:
    """Return the rows with all kernels moved."""
    return [row | {"start_ns": row["start_ns"] + by} if row["kind"] == "kernel" else row for row in rows]


def test_what_is_lost() -> None:
    """Calls that launch nothing are not lost: fills of 0 bytes, calls in a capture (also one that began before the
    recording), a driver call inside a runtime call, and calls of an operator whose kernels have no correlation id."""
    whole, cut = steps(set()), late(steps(set()), 3_000_000)
    end = max(row["start_ns"] + row["dur_ns"] for row in whole)
    fine = [
        host("cudaStreamEndCapture", "runtime", 60, 5, tid=2),
        host("cudaLaunchKernel", "runtime", 20, 5, tid=2, correlation=101),
        host("cudaMemsetAsync", "runtime", 100, 5, correlation=102),
        host("cudaStreamBeginCapture", "runtime", 200, 5),
        host("cudaLaunchKernel", "runtime", 210, 5, correlation=103),
        host("cudaStreamEndCapture", "runtime", 220, 5),
        host("cudaLaunchKernelExC", "runtime", 300, 50, correlation=104),
        host("cuLaunchKernelEx", "runtime", 310, 20, correlation=105),
        host("cudaStreamWaitEvent", "runtime", 380, 5, correlation=106),
        device("Stream Wait Event", "sync", 390, 5, 106),
        device("gemm", "kernel", 400, 50, 104),
        host("aten::mm", "operator", 500, 100, external=7),
        host("cudaLaunchKernel", "runtime", 510, 20, correlation=107),
        device("add", "kernel", 530, 10, None, external=7),
    ]
    capture = [
        host("cudaLaunchKernel", "runtime", 0, 5, correlation=1),
        device("gemm", "kernel", 10, 5, 1),
        host("cudaLaunchKernel", "runtime", 210, 5, correlation=2),
        host("aten::mm", "operator", 300, 5_000),
    ]
    nodes = ["a", "b", "b", "c"]
    cases = {
        "the first six launches of 16": trace(steps(HEAD)),
        "a kernel in the middle of each step": trace(steps({2, 6, 10, 14})),
        "all device work: launch calls without it are no recording of a CPU": trace(steps(set(range(1, 17)))),
        "a recording of a CPU": trace([host("aten::mm", "operator", 0, 10), host("cudaMemsetAsync", "runtime", 2, 1)]),
        "device work whose times cannot be":
            trace(steps({13, 14, 15, 16}, kind=schema.IMPLAUSIBLE, start_ns=3_000_000, dur_ns=0)),
        "the host is a step ahead: lost work of step 1 would have run in step 2": trace(late(steps({6}), 1_000_000)),
        "without steps": trace([row for row in steps({3}) if row["kind"] != "step"]),
        "the device is 3 ms behind the host, and the recording ends with the last step":
            trace([row for row in cut if row["start_ns"] + row["dur_ns"] <= end]),
        "the last two launches, for which the device had time": trace(steps({15, 16})),
        "calls that launch nothing": trace(fine),
        "and a lost one": trace([*fine, host("cudaLaunchKernel", "runtime", 700, 5_000, correlation=108)]),
        "a capture begins also with an impossible duration":
            trace([*capture, host("cudaStreamBeginCapture", "runtime", 200, 10**14)]),
        "the same calls outside a capture": trace(capture),
        "replays of one graph have the same nodes": replays(nodes, ["a", "b", "", "c"], nodes, ["", "b", "b", ""]),
        "a graph with other nodes at the same place": replays(nodes, ["a", "d"], nodes),
        "the smaller set of nodes is the usual one": replays(["a", "b"], ["a", "b"], nodes),
        "nothing is left of the only replay": replays([]),
        "the id of a graph tells which replays are equal":
            replays(["a", "b"], ["a", "b"], ["a", "b", "c"], args='{"graph id": 5, "graph node id": 3}'),
        "only fills of 2 µs at the pace of lost kernels are left": replays(*[["Memset"] * 4] * 3, pace=200_000),
        "replays of kernels and fills": replays(*[["gemm", "gemm", "Memset"]] * 3, pace=200_000),
    }  # fmt: skip
    told = (LOST, CUT_OFF, INCOMPLETE_REPLAYS, OVERLONG)
    check_golden("trace/lost_records.txt", "\n".join(
        f"# {name}\nincomplete steps: {incomplete(found)}\n"
        + "".join(f"{each.code}: {each.message}\n" for each in found.quality if each.code in told)
        for name, found in cases.items()
    ))  # fmt: skip
    assert verdict(cases["only fills of 2 µs at the pace of lost kernels are left"]).startswith("Cannot tell")
    without_launches = verdict(cases["all device work: launch calls without it are no recording of a CPU"])
    assert without_launches.startswith("Cannot tell")


def test_a_profiler_that_reports_lost_records(tmp_path: Path) -> None:
    """Kineto writes its log into the trace. Nsight Systems has a table of diagnostics."""
    events = [chrome.event("aten::mm", 1)]
    log = ["INFO:2024 1:1 CuptiActivityProfiler.cpp:3] Record counts: CUPTI stopped early? = {}"]
    fine = chrome.write(tmp_path / "fine.json", events, INFO=[log[0].format(0)])
    assert DROPPED not in codes(load(fine))
    full = chrome.write(tmp_path / "full.json", events, INFO=[log[0].format(1)],
                        WARNING=["WARNING:2024 1:1 x.cpp:5] Dropped 12 activity records"])  # fmt: skip
    text = finding(load(full), DROPPED)
    assert text == "the profiler reports lost records: stopped early? = 1, Dropped 12 activity records"

    export = Export()
    export.call("cudaLaunchKernel", 0, 10, 1)
    export.kernel("gemm", 20, 40, 1)
    export.add("DIAGNOSTIC_EVENT", timestamp=0, severity=2, text="Not all CUDA events might have been collected.")
    assert "Not all CUDA events" in finding(load(export.write(tmp_path / "x.sqlite")), DROPPED)


def test_lost_kernels_of_paddle(tmp_path: Path, traces: Path) -> None:
    """Every third kernel of a recording of Paddle is removed from its file."""
    file = traces / "paddle/gpu-synthetic/gpu1_by_3.3.1.json.gz"
    content = json.loads(gzip.decompress(file.read_bytes()))
    events = content["traceEvents"]
    kernels = [at for at, event in enumerate(events) if event.get("cat") == "Kernel" and event.get("ph") == "X"]
    content["traceEvents"] = [event for at, event in enumerate(events) if at not in set(kernels[::3])]
    (tmp_path / "lost.json").write_text(json.dumps(content))
    assert LOST not in codes(load(file))
    assert finding(load(tmp_path / "lost.json")).startswith(f"{len(kernels[::3])} of ")


def test_server_steps_without_device_work_have_no_busy_time(tmp_path: Path) -> None:
    """The kernels of one of four graph replays are lost. The other decode steps keep their times."""
    decode_and_prefill(tmp_path / "all.json")
    content = json.loads((tmp_path / "all.json").read_text())
    launch = [event for event in content["traceEvents"] if event["name"] == "cudaGraphLaunch"][1]["args"]["correlation"]
    content["traceEvents"] = [
        event for event in content["traceEvents"]
        if event["cat"] != "kernel" or event["args"]["correlation"] != launch
    ]  # fmt: skip
    (tmp_path / "lost.json").write_text(json.dumps(content))
    decodes = summarize(load(tmp_path / "lost.json"), "serving", by="step")
    decodes = decodes[decodes["kind"] == "decode"]
    for name in ("busy_ns", "gap_ns", "step_ns"):
        assert decodes[name].isna().tolist() == [False, True, False, False]


@pytest.mark.parametrize(
    ("numbers", "left_out"),
    [
        (range(300), None),
        ([*range(1_000, 1_150), *range(90_000, 90_150)], None),  # a recording that was cut
        (range(0, 1_200, 4), "only 300 of 1,197 operators are in the recording, by their numbers"),
        (range(0, 320, 4), None),  # 80 operators
    ],
    ids=["all", "cut", "a fourth", "few"],
)
def test_holes_in_the_numbers_of_operators(tmp_path: Path, numbers: Sequence[int], left_out: str | None) -> None:
    """Nothing is known about the time in which no work was recorded: it may be that of operators that were left out."""
    events = [chrome.event("ProfilerStep#0", 0, 1e4, cat="user_annotation")]
    events += [chrome.event("aten::mul", 10 * at + 1, 5, args={"Ev Idx": number}) for at, number in enumerate(numbers)]
    events += [
        chrome.event("cudaLaunchKernel", 2, 1, cat="cuda_runtime", args={"correlation": 7}),
        chrome.event("k", 5, 2000, cat="kernel", pid=0, tid=7, args={"correlation": 7, "device": 0, "stream": 7}),
    ]
    found = load(chrome.write(tmp_path / "t.json", events))
    messages = [finding.message for finding in found.quality if finding.code == OPERATORS_LEFT_OUT]
    assert [text.partition(";")[0] for text in messages] == ([left_out] if left_out else [])
    assert verdict(found).startswith("No verdict: operators were left out") == bool(left_out)
    report = summary_report(found, choose_views(["causes"]), ViewRequest(), Display(limit=9), brief=True)
    states = report.sections[0].table["state"].tolist()[:2]
    assert states == (["no_work", "compute"] if left_out else ["tail", "compute"])
    if left_out:
        assert "Devices work for at least 20%" in verdict(found)
        assert not advise(found).advice
