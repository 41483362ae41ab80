"""A third framework only needs hooks: the example plugin reads MindSpore's timeline, and all numbers are checked."""

from __future__ import annotations

import io
import json
import re
import sys
from collections import Counter
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from perfkit_core.advice.engine import advise
from perfkit_core.base.algorithms import intervals
from perfkit_core.errors import SourceError
from perfkit_core.plugins.contracts import ExportOptions, ViewRequest
from perfkit_core.plugins.manager import EntryPoint, Plugins
from perfkit_core.plugins.manager import load as load_plugins
from perfkit_core.readers.load import load
from perfkit_core.testing.conformance import check_exporter
from perfkit_core.trace.model.trace import Trace
from perfkit_core.views.merging import table_of
from tests.support.events import device, host
from tests.support.events import trace as made
from tests.support.paths import ROOT

pytestmark = pytest.mark.bare


EXAMPLE = ROOT / "tests" / "example_plugin"


@pytest.fixture(scope="module")
def plugins() -> Iterator[Plugins]:
    """Load the core and the example plugin, without the adapters for torch and Paddle."""
    sys.path.insert(0, str(EXAMPLE))
    try:
        yield load_plugins([entry_point()])
    finally:
        sys.path.remove(str(EXAMPLE))


def entry_point() -> EntryPoint:
    """Return the entry point that the example's ``pyproject.toml`` declares."""
    text = (EXAMPLE / "pyproject.toml").read_text(encoding="utf-8")
    name, value = re.search(r'\[project\.entry-points\.perfkit\]\n(\w+) = "([\w.]+)"', text).groups()
    return EntryPoint(name, value)


@pytest.fixture(scope="module")
def timeline(traces: Path) -> Path:
    return traces / "other" / "mindspore-timeline.json"


@pytest.fixture(scope="module")
def found(plugins: Plugins, timeline: Path) -> Trace:
    return load(timeline, plugins=plugins)


@pytest.fixture(scope="module")
def recorded(timeline: Path) -> list[dict[str, Any]]:
    events = json.loads(timeline.read_text(encoding="utf-8"), parse_float=Decimal)
    return [event for event in events if event["pid"] == 1]


def test_the_core_only_uses_its_hooks(plugins: Plugins) -> None:
    listed = plugins.listed["mindspore"]
    assert listed.error is None
    assert listed.hooks == (
        "perfkit_exporters", "perfkit_frameworks", "perfkit_rules", "perfkit_sources", "perfkit_views",
    )  # fmt: skip


def test_every_operator_of_the_timeline_is_a_kernel(found: Trace, recorded: list[dict[str, Any]]) -> None:
    assert len(found) == len(recorded) > 2000
    mine = Counter(zip(found.events["name"].to_pylist(), found.ints("start_ns").tolist(), found.ints("dur_ns").tolist(),
                       found.ints("stream").tolist(), strict=True))  # fmt: skip
    theirs = Counter(
        (e["name"].rpartition("-")[0], round(e["ts"] * 1000), round(e["dur"] * 1000), e["tid"]) for e in recorded
    )
    assert mine == theirs
    assert set(found.events["device"].to_pylist()) == {"npu:0"}


def test_the_cores_views_and_its_own_answer(plugins: Plugins, found: Trace, recorded: list[dict[str, Any]]) -> None:
    views = plugins.views()
    kernels = table_of(views["kernels"], found, ViewRequest()).set_index("name")
    expected = sum(round(e["dur"] * 1000) for e in recorded if e["args"]["type"] == "MatMul")
    assert kernels["total_device_ns"]["MatMul"] == expected
    layers = table_of(views["layers"], found, ViewRequest())
    assert int(layers["calls"].sum()) == len(recorded)
    whole = intervals.length(intervals.union(found.ints("start_ns"), found.end_ns))
    assert int(layers["busy_ns"].max()) <= whole <= int(layers["busy_ns"].sum())
    (row,) = table_of(views["device"], found, ViewRequest()).to_dict("records")
    assert (row["device"], row["product"], row["busy_ns"]) == ("npu:0", "Ascend", whole)


def test_phases_come_from_the_scopes_of_the_graph(found: Trace) -> None:
    by_phase = Counter(found.events["phase"].to_pylist())
    assert set(by_phase) == {"forward", "backward", "optimizer"}
    gradients = [module.startswith("Gradients/") for module in found.events["module"].to_pylist()]
    assert by_phase["backward"] == sum(gradients) > 100


def test_without_the_plugin_the_file_is_refused_in_words(timeline: Path) -> None:
    with pytest.raises(SourceError, match=r"unknown profile format.*perfkit reads"):
        load(timeline, plugins=load_plugins([]))


def test_a_cut_timeline_gives_its_beginning(plugins: Plugins, timeline: Path, found: Trace, tmp_path: Path) -> None:
    path = tmp_path / "cut.json"
    data = timeline.read_bytes()
    path.write_bytes(data[: len(data) // 2])
    with pytest.raises(SourceError, match=re.escape(str(path))):
        load(path, plugins=plugins)
    part = load(path, plugins=plugins, partial=True)
    assert 500 < len(part) < len(found)
    assert part.ints("start_ns").tolist() == found.ints("start_ns")[: len(part)].tolist()
    assert "truncated" in {finding.code for finding in part.quality}


def test_it_exports_in_a_format_of_its_own(plugins: Plugins, found: Trace) -> None:
    exporter = plugins.exporters()["layers"]
    check_exporter(exporter, found)
    file = io.BytesIO()
    exporter.write(found, file, ExportOptions())
    lines = dict(line.split("\t") for line in file.getvalue().decode().splitlines())
    layers = table_of(plugins.views()["layers"], found, ViewRequest()).set_index("layer")["busy_ns"]
    assert {name: int(busy) for name, busy in lines.items()} == layers.to_dict()
    assert "chrome" in plugins.exporters()


def test_it_gives_advice_by_a_rule_and_a_remedy_of_its_own(plugins: Plugins) -> None:
    """A conversion runs between two kernels, and a synchronisation returns 3 µs after the second kernel."""
    trace = made(
        [
            host("step", "step", 0, 130_000, step=0),
            *(host(f"launch {n}", "runtime", 1_000 * n, 1_000, correlation=n + 1) for n in range(3)),
            device("MatMul", "kernel", 5_000, 50_000, 1),
            device("TransData", "kernel", 56_000, 30_000, 2),
            device("MatMul", "kernel", 87_000, 30_000, 3),
            host("deviceSynchronize", "sync", 3_000, 117_000),
        ]
    ).with_meta(framework="mindspore")
    (one,) = advise(trace, rules=["format-conversions"], plugins=plugins).advice
    assert one.candidate.evidence == {"conversions": 1, "device_ns": 30_000}
    assert one.prediction.saving_ns == 30_000 + 1_000  # the conversion, and the gap after it
    assert (one.remedy.code, one.remedy.api) == ('net.set_format("NC1HWC0")', "Cell.set_format")
    assert one.severity == "high"


def test_its_rule_says_why_it_cannot_tell(plugins: Plugins, found: Trace) -> None:
    result = advise(found, rules=["format-conversions"], plugins=plugins)
    assert not result.advice
    assert "no host events" in str(result.not_evaluable["format-conversions"])
