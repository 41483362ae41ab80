"""Tests of the stored noise: what is stored, read back and used for recordings of this machine."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import numpy as np
import pytest

from perfkit_core.compare.noise import ASSUMED, MEASURED, Between, between_runs
from perfkit_core.compare.report import comparison_report
from perfkit_core.measure.calibration import equal_runs
from perfkit_core.measure.calibration.equal_runs import DEVICE, HOST, MOMENT_NS
from perfkit_core.measure.verify import noise, runs
from perfkit_core.measure.verify.outcome import judged, report
from perfkit_core.measure.verify.runs import Metric
from perfkit_core.measure.verify.step_times import StepTimes
from perfkit_core.recording.throughput.costs import HOST as HOST_CLOCK
from perfkit_core.trace.model.trace import Trace
from tests.support.rendered import rendered
from tests.support.stepped_trace import stepped_trace

MS = 1_000_000
MEDIANS_MS = (100, 102, 98, 100)
LONG = [600.0, 601.0, 600.0, 599.0]
"""Steps of more than half a second, so that the recordings are not short."""


@pytest.fixture(autouse=True)
def own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def here(steps: list[float]) -> Trace:
    return stepped_trace(steps).with_meta(hostname=socket.gethostname())


def timed(medians_ms: tuple[int, ...], clock: str = HOST_CLOCK) -> list[runs.Timed]:
    """Return runs of 12 steps, the first of which is longer. It does not change the median."""
    every = [StepTimes("fw", clock, (900 * MS, *[ms * MS] * 11)) for ms in medians_ms]
    return [runs.Timed(one.mean_ns, ("fw",), one) for one in every]


def test_noise_is_used_for_recordings_of_the_machine_framework_and_kind() -> None:
    ratio = float(np.log(MEDIANS_MS).std(ddof=1))
    noise.store("python a.py", timed(MEDIANS_MS))
    found = between_runs([here(LONG)])
    # Student's t for 3 degrees of freedom is 3.182, and 1.95996 without limit.
    assert (found.origin, found.runs, found.ratio) == (MEASURED, 4, pytest.approx(ratio * 3.182 / 1.95996))
    assert between_runs([stepped_trace(LONG)]) == Between(0.1)
    assert between_runs([here(LONG).with_meta(framework="other")]) == Between(0.1)
    assert equal_runs.measured(here(LONG).meta, DEVICE, MOMENT_NS) is None
    noise.store("python b.py", timed((10, 10, 10), "events of a device"))
    assert equal_runs.measured(here(LONG).meta, DEVICE, MOMENT_NS) == equal_runs.Measured(0, 2, 3)
    assert equal_runs.measured(here(LONG).meta, HOST, MOMENT_NS) == equal_runs.Measured(pytest.approx(ratio), 3, 4)
    # Recordings of a quarter of the moment differ twice as much.
    assert equal_runs.measured(here(LONG).meta, HOST, MOMENT_NS // 4).ratio == pytest.approx(2 * ratio)


def test_the_verdict_says_that_noise_was_measured() -> None:
    noise.store("python a.py", timed((100, 101, 99, 100)))
    (told, *_) = rendered(comparison_report(here(LONG), here([ms * 1.1 for ms in LONG])).headline)
    assert told.startswith(
        "Slower: the median recorded step takes 660 ms instead of 600 ms, 10% longer (95% interval of the change: "
    )
    assert told.endswith(" noise measured in 4 equal runs on this machine.")


def test_damaged_lines_and_other_formats_are_skipped() -> None:
    noise.store("python a.py", timed(MEDIANS_MS))
    path = equal_runs.file()
    (line,) = path.read_bytes().splitlines()
    fields = json.loads(line)
    assert (fields["format"], fields["kind"], fields["steps"], fields["median_ns"][1]) == (1, "host", 12, 102 * MS)
    others = [{**fields, "format": 2}, {**fields, "median_ns": [0, 1]}, {**fields, "hostname": "elsewhere"}]
    lines = [line[:40], b"\xff\xfe", b"[]", b"", *(json.dumps(other).encode() for other in others)]
    path.write_bytes(b"\n".join([*lines, line]))
    noise.store("python b.py", timed(MEDIANS_MS))
    assert [one.command for one in equal_runs.stored()] == ["python b.py", "python a.py"]
    path.unlink()
    path.mkdir()
    assert equal_runs.stored() == []
    assert between_runs([here(LONG)]).origin == ASSUMED


def test_verify_stores_the_noise_of_both_sides() -> None:
    sides = {"base": timed(MEDIANS_MS), "change": timed((50, 51, 49))}
    measured = [runs.Run(1, side, *result) for side, results in sides.items() for result in results]
    outcome = judged(runs.Plan("a", "b", Metric()), "", measured)
    stored = noise.of_verification(outcome)
    assert [(one.command, len(one.median_ns)) for one in equal_runs.stored()] == [("b", 3), ("a", 4)]
    assert "Equal runs of base and change differ by 1.63% and 2.00%" in report(outcome, stored).headline[-1]
    only_change = {"change": stored["change"]}
    assert "Equal runs of change differ by 2.00%" in report(outcome, only_change).headline[-1]
    printed = [runs.Run(1, side, 1.0) for side in ("base", "change") for _ in range(3)]
    assert noise.of_verification(judged(runs.Plan("a", "b", Metric("ms")), "", printed)) == {}
