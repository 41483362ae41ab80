"""Counts and times of recorded sections, and their limits, checked against JSON and by hand."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from perfkit_core.errors import SourceError, UsageError
from perfkit_core.integrations.pytest_plugin import baselines, budget, terminal
from perfkit_core.integrations.pytest_plugin.section import Section
from perfkit_core.plugins.frameworks import Recorder
from perfkit_core.readers.load import load
from perfkit_core.trace.model.trace import Trace
from tests.support.stepped_trace import stepped_trace


def section_of(trace: Trace, times_ns: Sequence[int] = (), memory: bool = False) -> Section:
    """Return a section with this recording, whose only step becomes step 1."""
    recorded = trace.with_ints(step=np.where(trace.ints("step") >= 0, 1, -1))
    section = Section("", "fw", Recorder(Section, section=lambda options: lambda: recorded), memory, stacks=True)
    section.end()
    section.times_ns = times_ns
    return section


@pytest.fixture(scope="module")
def bert(traces: Path) -> Section:
    return section_of(load(traces / "torch" / "h100-bert-small.json.gz"), memory=True)


def test_device_work_is_counted_if_the_section_launched_it(bert: Section, traces: Path) -> None:
    """The step of the recording is the section. Work after its end does not count, whoever waits for it."""
    with gzip.open(traces / "torch" / "h100-bert-small.json.gz") as file:
        events = [event for event in json.load(file)["traceEvents"] if event.get("ph") == "X"]
    (step,) = (
        event for event in events if event["name"].startswith("ProfilerStep#") and event["cat"] == "user_annotation"
    )
    calls = [
        event for event in events
        if event["cat"] in ("cuda_runtime", "cuda_driver") and 0 <= event["ts"] - step["ts"] <= step["dur"]
    ]  # fmt: skip
    launched = {event["args"]["correlation"] for event in calls}
    work = {
        category: sum(event["cat"] == category and event["args"]["correlation"] in launched for event in events)
        for category in ("kernel", "gpu_memcpy")
    }
    assert bert.counts["kernels"] == sum(bert.kernels.values()) == work["kernel"] > 0
    assert bert.counts["copies"] == work["gpu_memcpy"]
    assert bert.counts["syncs"] == sum("Synchronize" in event["name"] for event in calls)
    assert bert.device_kinds == "cuda"


def test_operators_are_those_of_the_framework(bert: Section, traces: Path) -> None:
    """A re-dispatch, which calls only an operator of its own name, is not a second call."""
    with gzip.open(traces / "torch" / "h100-bert-small.json.gz") as file:
        names = [event["name"] for event in json.load(file)["traceEvents"] if event.get("cat") == "cpu_op"]
    for name in ("aten::linear", "aten::addmm", "aten::layer_norm", "aten::gelu"):
        assert bert.operators[name] == names.count(name)
    assert bert.counts["operators"] == sum(bert.operators.values()) <= len(names)


def test_what_cannot_be_known_is_null() -> None:
    """Without a device there are no kernels to count. That is not the number 0."""
    section = section_of(stepped_trace([10], operators=3))
    assert section.counts == {"operators": 3, "kernels": None, "copies": None, "syncs": None, "peak_bytes": None}
    assert section.device_kinds == "cpu"
    (kernels,) = budget.results(section, budget.parsed({"kernels": 0}))
    assert (kernels.result, kernels.measured) == ("cannot tell", "-")
    with pytest.raises(UsageError, match="the memory was not recorded"):
        list(budget.results(section, budget.parsed({"peak_bytes": 10})))


@pytest.mark.parametrize(("limit", "result"), [(2, "failed"), (3, "passed"), (4, "passed")])
def test_counts_gate_exactly(limit: int, result: str) -> None:
    (found,) = budget.results(section_of(stepped_trace([10], operators=3)), budget.parsed({"operators": limit}))
    assert (found.measured, found.result) == ("3", result)


MS = 1_000_000


@pytest.mark.parametrize(
    ("limit", "noise", "result"),
    [
        ("21 ms", "0%", "passed"),
        ("19 ms", "0%", "failed"),
        # Equal runs with a deviation of 10% differ by up to 2 · 20 ms · sinh(1.96 · 0.1 · √2 / 2) = 5.57 ms, and one of
        # them differs by 5.57 ms / √2 = 3.94 ms from the limit.
        ("17 ms", "10%", "slower, but within noise"),
        ("16 ms", "10%", "failed"),
        # Nothing is known of the noise of this machine: 10% are assumed for steps of half a second or more.
        ("17 ms", None, "slower, but within noise"),
        ("16 ms", None, "failed"),
    ],
)
def test_a_time_is_judged_by_the_noise_rules_of_compare(limit: str, noise: str | None, result: str) -> None:
    section = section_of(stepped_trace([20]), times_ns=[20 * MS] * 25)
    given = {"step_time": limit} | ({} if noise is None else {"noise": noise})
    (found,) = budget.results(section, budget.parsed(given))
    assert (found.result, found.measured) == (result, "20.0 ms")


def test_one_call_cannot_decide_on_a_time() -> None:
    (found,) = budget.results(section_of(stepped_trace([20]), [20 * MS]), budget.parsed({"step_time": "1 ms"}))
    assert found.result == "cannot tell"
    with pytest.raises(UsageError, match=r"use perf\.repeat"):
        list(budget.results(section_of(stepped_trace([20])), budget.parsed({"step_time": "1 ms"})))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"kernles": 3}, "unknown argument 'kernles'; did you mean kernels"),
        ({"kernels": -1}, "kernels=-1 is not a number of kernels"),
        ({"operators": 1.5}, "operators=1.5 is not a number"),
        ({"operators": True}, "operators=True is not a number"),
        ({"peak_bytes": "3 apples"}, "'3 apples' is not a size"),
        ({"step_time": 20}, "step_time: '20' is not a duration"),
        ({"step_time": "20 MiB"}, "step_time: '20 MiB' is not a duration"),
        ({"step_time": "20 M"}, "step_time: '20 M' is not a duration; example: 20 ms; units: ns, µs, ms, s, us$"),
        ({"step_time": "1 s", "rounds": 0}, "rounds=0 times no calls, but step_time limits their time; leave rounds"),
        ({"noise": "2"}, "noise: '2' is not a"),
        ({"forbid": "("}, r"not a regular expression: '\(' .*; patterns are in RE2 syntax, in which \\\( matches"),
        ({"forbid": 3}, "forbid=3 is not a pattern or a list of patterns; example: "),
    ],
)
def test_wrong_arguments_are_named(given: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        budget.parsed(given)


def test_peak_bytes_may_have_a_unit() -> None:
    assert budget.parsed({"peak_bytes": "1.5 KiB"}).limits == {"peak_bytes": 1536}


def test_a_baseline_shows_what_was_added(tmp_path: Path) -> None:
    path = baselines.file_of(tmp_path / "test_model.py")
    assert path == tmp_path / "perf_baselines" / "test_model.json"
    before, now = section_of(stepped_trace([10], operators=2)), section_of(stepped_trace([10], operators=3))
    baselines.update(path, {"test_a": {"cpu": baselines.of_section(before)}})
    (result,) = baselines.results(now, "test_a", path)
    assert (result.number, result.limit, result.measured, result.result) == ("operators", "2", "3", "failed")
    text = terminal.failure("test_a", [result], now, baselines.differences(now, "test_a", path))
    assert text.splitlines()[-1].split() == ["fw::matmul", "2", "3", "1"]
    (result,) = baselines.results(section_of(stepped_trace([10], operators=1)), "test_a", path)
    assert result.result == "below the baseline"
    with pytest.raises(UsageError, match="no limit, and no baseline"):
        list(baselines.results(now, "test_b", path))


def test_a_baseline_of_another_device_decides_nothing(bert: Section, tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    baselines.update(path, {"test_a": {"cpu": baselines.of_section(section_of(stepped_trace([10])))}})
    (result,) = baselines.results(bert, "test_a", path)
    assert (result.result, result.note) == ("cannot tell", "the baseline is of cpu, not of cuda")
    baselines.update(path, {"test_a": {"cuda": baselines.of_section(bert)}})
    assert set(baselines.read(path).tests["test_a"]) == {"cpu", "cuda"}
    assert {each.result for each in baselines.results(bert, "test_a", path)} == {"passed"}


@pytest.mark.parametrize("content", ["{", '{"format": 2, "tests": {}}', '{"format": 1, "tests": {"a": {"cpu": 3}}}'])
def test_a_damaged_file_of_baselines_is_named(tmp_path: Path, content: str) -> None:
    path = tmp_path / "a.json"
    path.write_text(content)
    with pytest.raises(SourceError, match=r"a\.json: "):
        baselines.read(path)
