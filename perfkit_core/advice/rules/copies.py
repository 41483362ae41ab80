"""Rule 11: copies of pageable memory, which block the host and are slower than the bus."""

from __future__ import annotations

from typing import Final

import numpy as np

from perfkit_core.advice.evidence.host_costs import calibrated
from perfkit_core.advice.evidence.transfers import Transfers, transfers
from perfkit_core.advice.facts import Facts
from perfkit_core.advice.model import Assumption, Candidate
from perfkit_core.advice.rules.phrases import counted, each_period, part, verb
from perfkit_core.advice.wording import size
from perfkit_core.language import in_english, say
from perfkit_core.plugins.contracts import Rule
from perfkit_core.replay.edits.durations import Scale
from perfkit_core.replay.edits.removal import Remove
from perfkit_core.replay.edits.unblocking import Unblock
from perfkit_core.replay.quantity import Quantity
from perfkit_core.trace import BoolArray, Trace

CALL_NS: Final = Quantity(
    5_000, 8_000, 17_000, in_english("calls of asynchronous copies of pinned memory in public recordings")
)
"""p10, p50 and p90 of 13 calls on a V100 and 25 on a B200, profiler running."""
_LARGE: Final = 1 << 20
"""Smaller copies take what starting them takes, not what the bus takes."""
_MEASURED: Final = 1 << 26
"""Bytes of a copy whose time is that of the bus."""
PINNED: Final = Quantity(
    24.0,
    12.0,
    6.0,
    in_english("prior, bytes/ns: PCIe 4 and 3 with 16 lanes reach 24 and 12 GB/s; half of that on a busy host"),
)


def pageable_copies(facts: Facts) -> list[Candidate]:
    """Rule 11: batches are copied to the device from pageable memory."""
    facts.need_device()
    found = transfers(facts)
    found = found.only(~found.to_host)
    if len(found) and not facts.trace.known("copy_kind"):
        return []
    found = found.only(_of(facts.trace, found, "pageable"))
    spent = _spent_ns(facts, found)
    if spent <= facts.thresholds.pageable_share * facts.step_ns:
        return []
    return [_pinned(facts, found, spent)]


def _pinned(facts: Facts, found: Transfers, spent: float) -> Candidate:
    large = found.only(found.bytes >= _LARGE)
    faster = _faster(facts, large)
    total, each = facts.per_step(int(np.maximum(found.bytes, 0).sum())), facts.per_step(len(found))
    return Candidate(
        say(
            "{counted} of pageable memory ({size}) {period} {verb} up the host for {part}",
            counted=counted(each, in_english("copy"), in_english("copies")),
            size=size(total),
            period=each_period(facts),
            verb=verb(each, "holds", "hold"),
            part=part(facts, spent),
        ),
        evidence={
            "copies_per_step": facts.per_step(len(found)), "bytes_per_step": round(total), "call_ns": round(spent),
            "step_ns": facts.step_ns, "bytes_per_ns": _bytes_per_ns(facts.trace, large),
        },
        rows=found.call,
        edits=(
            Scale(large.row, faster, below=False),
            Unblock(found.call, CALL_NS),
            Remove(found.sync[found.sync >= 0], below=False),
        ),
        ceiling_ns=round(spent + facts.per_step(int(facts.trace.ints("dur_ns")[found.row].sum()))),
        preconditions=(say("the memory copied from is pageable"), say("the copies go to the device")),
        assumptions=(
            Assumption("call_ns", CALL_NS, CALL_NS.source),
            Assumption("copy_factor", faster, faster.source),
        ),
        risks=(
            say("pinned memory cannot be swapped out"),
            say("the copied memory must not change before the copy is over"),
        ),
    )  # fmt: skip


def _faster(facts: Facts, large: Transfers) -> Quantity:
    """Factor of the time of large copies: by the run's own copies of pinned memory, else by what buses reach."""
    now = _bytes_per_ns(facts.trace, large)
    if now is None:
        return Quantity(1.0, 1.0, 1.0, in_english("no copy is large enough for the speed of the bus to count"))
    every = transfers(facts)
    pinned = every.only(~every.to_host & _of(facts.trace, every, "pinned") & (every.bytes >= _LARGE))
    recorded = _bytes_per_ns(facts.trace, pinned)
    if recorded is not None:
        factor = min(now / recorded, 1.0)
        return Quantity(factor, factor, factor, in_english("pinned copies of the same recording"))
    pinned_speed = _calibrated(facts.trace) or PINNED
    low, mid, high = (min(now / speed, 1.0) for speed in (pinned_speed.low, pinned_speed.mid, pinned_speed.high))
    return Quantity(low, mid, high, pinned_speed.source)


def _calibrated(trace: Trace) -> Quantity | None:
    """Bytes/ns of copies of pinned memory, the fastest first, as measured on this machine."""
    measured = calibrated(trace)
    copy = measured.copy_ns("htod", _MEASURED, pinned=True) if measured else None
    return Quantity(_MEASURED / copy.low, _MEASURED / copy.mid, _MEASURED / copy.high, copy.source) if copy else None


def _bytes_per_ns(trace: Trace, found: Transfers) -> float | None:
    """Speed of some copies (bytes/ns are GB/s), None of none."""
    total = int(trace.ints("dur_ns")[found.row].sum())
    return round(int(found.bytes.sum()) / total, 3) if total else None


def _spent_ns(facts: Facts, found: Transfers) -> float:
    """In a step, in the calls of the copies and behind them."""
    dur = facts.trace.ints("dur_ns")
    return facts.per_step(int(dur[found.call].sum() + dur[found.sync[found.sync >= 0]].sum()))


def _of(trace: Trace, found: Transfers, memory: str) -> BoolArray:
    kinds = trace.codes("copy_kind")
    of = kinds.lookup(np.array([memory in kind.lower() for kind in kinds.values], np.bool_), False)
    kept: BoolArray = of[found.row]
    return kept


RULES: Final = (Rule("pageable-copies", 11, 1, "Copy batches from pinned memory", pageable_copies),)
