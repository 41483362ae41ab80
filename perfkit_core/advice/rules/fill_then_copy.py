"""Rule 4, fill-then-copy: a tensor is filled on the host and then copied to the device.
Detected: an operator that only fills host memory, directly followed by an operator that copies to the device.
Predicted: the step time if the device fills the tensor and nothing is copied."""

from __future__ import annotations

from typing import Final

import numpy as np

from perfkit_core.advice import operators, transfers
from perfkit_core.advice.rule_input import Candidate, RuleInput, assume, listed
from perfkit_core.base.language.messages import message
from perfkit_core.replay.transforms import Move, Quantity

_FILLS: Final = ("fill", "arange", "random", "triangular", "one_hot")
_DIRECTLY_NS: Final = 100_000
"""Longest time between the fill and the copy. A later copy is assumed to copy other data."""
_ASSUMED_ELEMENT_BYTES: Final = 4
_WRITE_NS_PER_BYTE: Final = Quantity(1 / 2000, 1 / 800, 1 / 250, message("estimate: a device writes 0.25 to 2 TB/s"))


def find(facts: RuleInput) -> list[Candidate]:
    facts.need_device()
    trace, copies, dur = facts.trace, transfers.transfers(facts), facts.trace.ints("dur_ns")
    copies = copies.only(~copies.to_host)
    order = transfers.outer_operators(facts, copies.owner)
    # keep the first copy of each operator, if the operator directly before it on the same thread fills a tensor
    at = order.of[copies.call]
    before = at - 1
    fills = trace.rows("op_name", *_FILLS)[order.row] & (order.works == 0) & ~transfers.only_allocates(trace, order.row)
    thread, row = np.append(order.thread, -1), np.append(order.row, -1)
    filled = (before >= 0) & (at >= 0) & np.append(fills, False)[before] & (thread[before] == thread[at])
    filled &= trace.ints("start_ns")[row[at]] - trace.end_ns[row[before]] <= _DIRECTLY_NS
    first = np.zeros(len(copies), np.bool_)
    first[np.unique(at, return_index=True)[1]] = True
    copies, before = copies.only(filled & first), before[filled & first]
    if not len(copies):
        return []
    rows, copying = order.row[before], order.row[order.of[copies.call]]
    # copies without recorded bytes: use the shape of the copied tensor
    by_shape = np.maximum(transfers.elements(trace, copying), 0) * _ASSUMED_ELEMENT_BYTES
    total = int(np.where(copies.bytes >= 0, copies.bytes, by_shape).sum())
    names, count = operators.distinct_names(trace, rows), facts.per_step(len(rows))
    spent = facts.per_step(int(dur[rows].sum() + dur[copying].sum()))
    launch, device = transfers.launching_ns(facts, order), transfers.on_device_ns(total / len(rows), _WRITE_NS_PER_BYTE)
    is_random = bool(trace.rows("op_name", "random")[rows].any())
    return [Candidate(
        facts.plural(
            "{count:count} tensor {per_step} is filled on the host by {names} and then copied to the device "
            "({size:bytes}). This takes {time}.",
            "{count:count} tensors {per_step} are filled on the host by {names} and then copied to the device "
            "({size:bytes}). This takes {time}.",
            count, names=listed(names), size=facts.per_step(total), time=facts.of_step(spent),
        ),
        evidence={
            "copies_per_step": count, "operators": names[:5], "bytes_per_step": round(facts.per_step(total)),
            "call_ns": round(spent), "step_ns": facts.step_ns,
        },
        rows=rows,
        transforms=(Move(rows, False, launch, device, copies.everything),),
        preconditions=(
            message("an operator that only fills memory runs on the host"),
            message("the next operator copies to the device"),
        ),
        assumptions=assume(launch_ns=launch, device_ns=device),
        risks=(message("Even with the same seed, the device draws different random numbers."),) if is_random else (),
        direction="to device",
        fill={"operator": names[0]},
    )]  # fmt: skip
