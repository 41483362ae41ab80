"""Rule 29: the peak of allocated memory compared with the memory of the device. No saving is predicted. The outcomes
are in ``tests/golden/advice/rules``."""

from __future__ import annotations

from pathlib import Path

from perfkit_core.advice.rule_input import RuleInput
from perfkit_core.advice.rules.memory_near_limit import find, peaks
from perfkit_core.readers.load import load
from perfkit_core.trace.model.meta import Device
from perfkit_core.trace.model.trace import Trace
from tests.support.events import host, trace
from tests.support.rule_cases import check_rule

GPU = Device("cuda:0", "NVIDIA A100", 1000)


def recorded(
    *totals: int | None, device: str = "cuda:0", devices: tuple[Device, ...] = (GPU,), total: bool = True
) -> Trace:
    """Return a step in which the allocated memory, 0 at first, takes the values of ``totals`` in turn."""
    rows, before = [host("step", "step", 0, 1_000_000, step=0), host("train", "operator", 0, 900_000)], 0
    for number, now in enumerate(totals):
        event = host("[memory]", "memory", 1000 * number, 0, bytes=now - before, total_bytes=now if total else None)
        rows.append({**event, "device": device})
        before = now
    return trace(rows).with_meta(devices=devices)


def test_memory_near_limit() -> None:
    event = host("[memory]", "memory", 10, 0, bytes=950, total_bytes=950, category="Allocate")
    rows = [host("step", "step", 0, 1000, step=0), host("train", "operator", 0, 900), {**event, "device": "cuda:0"}]
    check_rule("memory-near-limit", {
        "a peak of 910 of 1000 bytes": recorded(400, 910, 300, 700),
        "a peak of 900 of 1000 bytes": recorded(400, 900, 300),
        "a peak of 400 of 1000 bytes": recorded(400),
        "memory that Paddle records on a device": trace(rows).with_meta(devices=(GPU,)),
        "no memory events": recorded(),
        "memory of the host": recorded(910, device="cpu"),
        "an unknown device": recorded(910, devices=()),
        "a device without a memory size": recorded(910, devices=(Device("cuda:0", "NVIDIA A100"),)),
        "without running totals": recorded(910, total=False),
    })  # fmt: skip
    peak = recorded(400, 910, 300, 700)
    (found,) = find(RuleInput(peak))
    assert peak.ints("total_bytes")[found.rows].tolist() == [910]


def test_the_peak_of_a_real_recording(traces: Path) -> None:
    """The evidence equals the largest recorded total and the recorded memory size of the device."""
    loaded = load(traces / "torch" / "h100-vit.json.gz")
    events = loaded.to_pandas()
    memory = events[(events["kind"] == "memory") & (events["device"] == "cuda:0")]
    (peak,) = peaks(RuleInput(loaded))
    assert peak.bytes == memory["total_bytes"].max() > 0
    assert peak.of_bytes == 85_018_279_936
