"""Rule 29: the peak of allocated memory compared with the memory of the device. Rule 55: a forward pass that is
computed again although the memory may have room for its results. No saving is predicted. The outcomes are in
``tests/golden/advice/rules``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from perfkit_core.advice.rule_input import RuleInput
from perfkit_core.advice.rules.memory_near_limit import find, peaks
from perfkit_core.readers.load import load
from perfkit_core.trace.model.meta import Device
from perfkit_core.trace.model.trace import Trace
from tests.support.events import device, host, trace
from tests.support.rule_cases import check_rule

GPU = Device("cuda:0", "NVIDIA A100", 1000)


def recorded(
    *totals: int | None, device: str = "cuda:0", devices: tuple[Device, ...] = (GPU,), total: bool = True
) -> Trace:
    """Return a step in which the allocated memory, 0 at first, takes the values of ``totals`` in turn."""
    rows = [host("step", "step", 0, 1_000_000, step=0), host("train", "operator", 0, 900_000)]
    return trace([*rows, *_events(totals, device, total)]).with_meta(devices=devices)


def _events(totals: Sequence[int | None], device: str = "cuda:0", total: bool = True) -> Iterator[dict[str, Any]]:
    before = 0
    for number, now in enumerate(totals):
        event = host("[memory]", "memory", 1000 * number, 0, bytes=now - before, total_bytes=now if total else None)
        yield {**event, "device": device}
        before = now


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


def trained(again: int, *peak: int, backward: str = "MmBackward0", gpu: bool = False) -> Trace:
    """Return a step of 10 ms with two forward products. In the backward pass, the first runs again for ``again`` µs,
    and an operator ``backward`` has a backward graph of its own. With a ``gpu``, each product launches a kernel."""
    shapes = {"shapes": "[[4, 5], [5, 6]]"}
    rows = [host("step", "step", 0, 10_000_000, step=0), host("wait", "annotation", 9_000_000, 900_000)]
    parts = (("aten::mm", "forward", 1, 500), ("aten::linear", "forward", 2, 500), ("aten::mm", "backward", 3, again),
             (backward, "backward", 4, 300), ("aten::mm", "backward", -1, 300))  # fmt: skip
    for name, phase, number, dur in parts:
        start, more = 1_000_000 * abs(number) + 100, {"phase": phase, **({} if number < 0 else {"sequence": number})}
        start += 500_000 if number < 0 else 0
        rows.append(host(name, "operator", start, dur * 1000, **more, **(shapes if number != 2 else {})))
        if gpu:
            rows.append(host("cudaLaunchKernel", "runtime", start + 10, 1000, correlation=number + 10))
            rows.append(device("gemm", "kernel", start + 2000, dur * 1000, number + 10))
    rows += [{**row, "start_ns": 8_000_000} for row in _events(peak)]
    return trace(rows).with_meta(framework="torch", devices=(GPU,) if gpu else ())


def test_recomputed_forward() -> None:
    """The product of 400 µs counts, with its kernel, and not the one of a gradient. Gradients of gradients repeat few
    of their operators."""
    check_rule("recomputed-forward", {
        "a product runs again for 400 µs, memory unknown": trained(400),
        "for 150 µs": trained(150),
        "its kernel, with 400 of 1000 bytes at the peak": trained(400, 400, gpu=True),
        "with 950 of 1000 bytes": trained(400, 950, gpu=True),
        "gradients of gradients": trained(400, backward="aten::threshold_backward"),
        "nothing runs again": recorded(400),
    })  # fmt: skip
