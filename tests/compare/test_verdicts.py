"""Tests of the report on two recorded runs: its step times are those of the file, and it reports devices, outlying
steps and a verdict."""

from __future__ import annotations

import gzip
import json
import statistics
from fractions import Fraction
from pathlib import Path

import pytest

from perfkit_core.compare.pair import CompareOptions, pair
from perfkit_core.compare.report import comparison_report
from perfkit_core.readers.load import load
from perfkit_core.trace.model.report_data import Report
from tests.compare.test_judged import Raw
from tests.support.rendered import rendered


def raw_steps(path: Path) -> list[int]:
    """Return the durations of the steps in ns, read directly from the file of torch."""
    with gzip.open(path, "rt", encoding="utf-8") as file:
        events = json.load(file, parse_float=Fraction)["traceEvents"]
    steps = [e for e in events if str(e.get("name", "")).startswith("ProfilerStep") and e.get("ph") == "X"]
    host = [e for e in steps if "gpu" not in str(e.get("cat", ""))]
    return [int(Fraction(e["dur"]) * 1000) for e in sorted(host, key=lambda e: Fraction(e["ts"]))]


def section(report: Report, name: str) -> object:
    return next((one for one in report.sections if one.name == name), None)


def test_the_workers_pair(traces: Path) -> None:
    """The data is loaded by four workers. The host runs ahead of the device, so steps end with their device work. The
    medians are those of the file without its first step, and the step that waits for a worker is listed as outlying."""
    files = [traces / "torch" / "pairs" / f"resnet50-workers{n}.json.gz" for n in (0, 4)]
    sides = [[round(ms * 1e6) for ms in Raw(path).cadence_ms()] for path in files]
    found = pair([load(files[0])], [load(files[1])], CompareOptions(noise=0.02))
    assert found.steps is not None
    assert [found.steps.base, found.steps.other] == [int(statistics.median(side)) for side in sides]
    assert found.steps.steps == (len(sides[0]), len(sides[1]))
    pairs = [(b > a) - (b < a) for a in sides[0] for b in sides[1]]
    assert found.steps.cliffs_delta == pytest.approx(sum(pairs) / len(pairs))
    assert found.steps.verdict == "faster"
    report = comparison_report([load(files[0])], [load(files[1])])
    assert any(sentence.startswith("Faster: the median recorded step takes 126 ms instead of 175 ms, 28.0%")
               for sentence in rendered(report.headline))  # fmt: skip
    late = section(report, "outliers").table
    assert late["dur_ns"].tolist() == pytest.approx([max(sides[1])], rel=0.01)
    assert section(report, "devices") is None
    assert report.data["step_time"]["difference"] == found.steps.difference


def test_two_vendors(traces: Path) -> None:
    """Each run has one step, so the noise is unknown. The devices differ, and their peak rates are shown."""
    files = [traces / "torch" / f"{device}-vit.json.gz" for device in ("h100", "mi300x")]
    report = comparison_report(load(files[0]), load(files[1]))
    step_time = report.data["step_time"]
    assert [step_time["base"], step_time["other"]] == [raw_steps(path)[0] for path in files]
    assert (step_time["verdict"], step_time["interval"], step_time["noise"]) == ("too few steps to tell", None, None)
    assert section(report, "devices").table["matrix16_tflop_per_s"].tolist() == [989.4, 1307.4]
    assert section(report, "devices").table["memory_gb_per_s"].tolist() == [3350, 5300]
    assert (
        "Different devices: NVIDIA H100 80GB HBM3 and AMD Instinct MI300X VF. The table devices lists their peak rates."
        in rendered(report.warnings)
    )
