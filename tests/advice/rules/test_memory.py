"""Rule 29: the peak of allocated memory compared with the memory of the device. No saving is predicted."""

from __future__ import annotations

from pathlib import Path

import pytest

from perfkit_core.advice.predict import predict
from perfkit_core.advice.rule_input import NotEvaluableError, RuleInput
from perfkit_core.advice.rules.memory_near_limit import find, peaks
from perfkit_core.readers.load import load
from perfkit_core.trace.model.meta import Device
from tests.support.events import host, trace

GPU = Device("cuda:0", "NVIDIA A100", 1000)


def recorded(
    *totals: int | None, device: str = "cuda:0", devices: tuple[Device, ...] = (GPU,), total: bool = True
) -> RuleInput:
    """Return a step in which the allocated memory, 0 at first, takes the values of ``totals`` in turn."""
    rows, before = [host("step", "step", 0, 1_000_000, step=0), host("train", "operator", 0, 900_000)], 0
    for number, now in enumerate(totals):
        event = host("[memory]", "memory", 1000 * number, 0, bytes=now - before, total_bytes=now if total else None)
        rows.append({**event, "device": device})
        before = now
    return RuleInput(trace(rows).with_meta(devices=devices))


def test_more_than_nine_tenths() -> None:
    facts = recorded(400, 910, 300, 700)
    (found,) = find(facts)
    assert found.evidence["peak_bytes"] == 910
    assert found.evidence["memory_ratio"] == 0.91
    assert facts.trace.ints("total_bytes")[found.rows].tolist() == [910]
    assert predict(facts, found).saving_ns is None


def test_up_to_nine_tenths() -> None:
    assert find(recorded(400, 900, 300)) == []
    assert find(recorded(400)) == []


@pytest.mark.parametrize(
    ("facts", "why"),
    [
        (recorded(), "no memory events"),
        (recorded(910, device="cpu"), "only host memory"),
        (recorded(910, devices=()), "memory size"),
        (recorded(910, devices=(Device("cuda:0", "NVIDIA A100"),)), "memory size"),
        (recorded(910, total=False), "running totals"),
    ],
)
def test_missing_memory_data(facts: RuleInput, why: str) -> None:
    with pytest.raises(NotEvaluableError, match=why):
        find(facts)


def test_the_peak_of_a_real_recording(traces: Path) -> None:
    """The evidence equals the largest recorded total and the recorded memory size of the device."""
    loaded = load(traces / "torch" / "h100-vit.json.gz")
    events = loaded.to_pandas()
    memory = events[(events["kind"] == "memory") & (events["device"] == "cuda:0")]
    (peak,) = peaks(RuleInput(loaded))
    assert peak.bytes == memory["total_bytes"].max() > 0
    assert peak.of_bytes == 85_018_279_936


def test_memory_that_paddle_records_on_a_device() -> None:
    event = host("[memory]", "memory", 10, 0, bytes=950, total_bytes=950, category="Allocate")
    rows = [host("step", "step", 0, 1000, step=0), host("train", "operator", 0, 900), {**event, "device": "cuda:0"}]
    (found,) = find(RuleInput(trace(rows).with_meta(devices=(GPU,))))
    assert found.evidence["memory_ratio"] == 0.95
