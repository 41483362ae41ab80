"""Rule 11, pageable-copies: copies from pageable memory block the host and are slower than the bus.
Detected: copies of the kind "pageable" to the device.
Predicted: the step time with copies from pinned memory. The host does not wait, and large copies are faster."""

from __future__ import annotations

import re
from typing import Final

import numpy as np

from perfkit_core.advice import operators, transfers
from perfkit_core.advice.matrix_products import cuda_major
from perfkit_core.advice.rule_input import Candidate, RuleInput, assume
from perfkit_core.base.language.messages import message
from perfkit_core.replay.transforms import Quantity, Remove, Scale, Unblock
from perfkit_core.trace.model.trace import Trace

_CALL_NS: Final = Quantity(
    5_000, 8_000, 17_000, message("measured: calls of asynchronous copies from pinned memory in public recordings")
)
"""Duration of one copy call (p10, p50, p90): 13 calls on a V100 and 25 calls on a B200, with a profiler running."""
_LARGE_BYTES: Final = 1 << 20
_BYTES: Final = 1 << 26
"""Size of a copy in the calibration. The speed of this copy is used for all large copies."""
_PINNED_BYTES_PER_NS: Final = Quantity(
    24.0, 12.0, 6.0,
    message("estimate: 24 GB/s with PCIe 4 and 12 GB/s with PCIe 3 (16 lanes), 6 GB/s on a busy host"),
)  # fmt: skip
_PCIE_5: Final = Quantity(48.0, 36.0, 12.0, message("estimate: 48 GB/s with PCIe 5 (16 lanes), 12 GB/s on a busy host"))
_PCIE_5_MAJOR: Final = 9
"""First major compute capability of devices with PCIe 5 (H100). Source: NVIDIA H100 white paper."""


def find(facts: RuleInput) -> list[Candidate]:
    facts.need_device()
    trace, copies = facts.trace, transfers.transfers(facts)
    copies = copies.only(~copies.to_host)
    if len(copies) and not trace.has_values("copy_kind"):
        return []
    pageable, pinned = (
        copies.only(operators.matching(trace, "copy_kind", re.compile(kind, re.IGNORECASE).search)[copies.row])
        for kind in ("pageable", "pinned")
    )
    spent = facts.covered_ns(np.append(pageable.call, pageable.syncs))
    batches = (pageable.bytes < 0) | (pageable.bytes > facts.thresholds.tiny_bytes)  # numbers are no batches
    if not batches.any() or not facts.exceeds(spent, facts.thresholds.pageable_share):
        return []
    large = pageable.only(pageable.bytes >= _LARGE_BYTES)
    speed, faster = _bytes_per_ns(trace, large), _faster(trace, large, pinned.only(pinned.bytes >= _LARGE_BYTES))
    size, count = facts.per_step(int(np.maximum(pageable.bytes, 0).sum())), facts.per_step(len(pageable))
    return [Candidate(
        facts.plural(
            "{count:count} copy {per_step} from pageable memory ({size:bytes}) blocks the host for {time}.",
            "{count:count} copies {per_step} from pageable memory ({size:bytes}) block the host for {time}.",
            count, size=size, time=facts.of_step(spent),
        ),
        evidence={
            "copies_per_step": count, "bytes_per_step": round(size), "call_ns": round(spent), "step_ns": facts.step_ns,
            "bytes_per_ns": speed,
        },
        rows=pageable.call,
        transforms=(
            Scale(large.row, faster, below=False), Unblock(pageable.call, _CALL_NS),
            Remove(pageable.syncs, below=False),
        ),
        ceiling_ns=round(spent + facts.mean_ns(pageable.row)),
        preconditions=(message("the source of the copies is pageable memory"), message("the copies go to the device")),
        assumptions=assume(call_ns=_CALL_NS, copy_factor=faster),
        risks=(
            message("Pinned memory cannot be swapped out."),
            message("The copied memory must not change before the copy has finished."),
        ),
    )]  # fmt: skip


def _faster(trace: Trace, large: transfers.Transfers, pinned: transfers.Transfers) -> Quantity:
    """Return the time that the large copies would take from pinned memory, divided by their recorded time from pageable
    memory. The pinned speed comes from recorded pinned copies, else from calibration, else from typical buses."""
    now, recorded = _bytes_per_ns(trace, large), _bytes_per_ns(trace, pinned)
    if now is None:
        return Quantity(1.0, 1.0, 1.0, message("no copy is large enough to be limited by the bus"))
    if recorded is not None:
        factor = min(now / recorded, 1.0)
        return Quantity(factor, factor, factor, message("recorded: speed of copies from pinned memory"))
    measured = transfers.calibrated(trace)
    copy = measured.copy_ns("htod", _BYTES, pinned=True) if measured else None
    majors = [cuda_major(device) or 0 for device in trace.meta.devices]
    speed = _PCIE_5 if majors and min(majors) >= _PCIE_5_MAJOR else _PINNED_BYTES_PER_NS
    if copy:
        speed = Quantity(_BYTES / copy.low, _BYTES / copy.mid, _BYTES / copy.high, copy.source)
    low, mid, high = (min(now / reached, 1.0) for reached in (speed.low, speed.mid, speed.high))
    return Quantity(low, mid, high, speed.source)


def _bytes_per_ns(trace: Trace, copies: transfers.Transfers) -> float | None:
    total = int(trace.ints("dur_ns")[copies.row].sum())
    return round(int(copies.bytes.sum()) / total, 3) if total else None
