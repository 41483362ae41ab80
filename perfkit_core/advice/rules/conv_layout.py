"""Rule 46, conv-layout: convolutions on the host read images in which each channel is a plane of its own.
Detected: convolutions whose inputs are contiguous, without a device.
Predicted: the step time if the channels of a pixel lie next to each other (channels last)."""

from __future__ import annotations

from typing import Final

import pyarrow.compute as pc

from perfkit_core.advice.facts import Candidate, Facts, NotEvaluableError, assume
from perfkit_core.advice.operators import operator_order, per_row
from perfkit_core.language.messages import message
from perfkit_core.replay.transforms import Quantity, Scale

_LAST: Final = Quantity(0.55, 0.8, 1.1, message("estimate: the library need not reorder its inputs and results"))
_IMAGE: Final = 4
"""Number of dimensions of a batch of images."""
_CHANNELS_LAST: Final = r'"Input Strides":\s*\[\[\d+,\s*1,'
_MOST: Final = 0.5
"""If more than this share of the inputs has its channels last, the training uses this layout already."""
_CONVOLUTIONS: Final = ("conv", "conv_grad")
_AROUND: Final = ("batch_norm", "batch_norm_grad", "pool", "pool_grad", "relu", "relu_grad")


def find(facts: Facts) -> list[Candidate]:
    if facts.on_device:
        return []
    trace, order = facts.trace, operator_order(facts.trace)
    if not trace.known("shapes"):
        raise NotEvaluableError(message("no shapes were recorded"), message("record shapes (record_shapes=True)"))
    here = order.row[facts.in_steps[order.row]]
    convolutions = here[trace.rows("op_name", *_CONVOLUTIONS)[here]]
    images = per_row(trace, convolutions, lambda shapes: bool(shapes) and len(shapes[0]) == _IMAGE, False)
    rows = convolutions[images | trace.rows("op_name", "conv_grad")[convolutions]]
    if not images.any():
        return []
    last = pc.match_substring_regex(trace.pick("args", convolutions[images]), _CHANNELS_LAST)
    if (pc.mean(last).as_py() or 0) > _MOST:
        return []
    spent = facts.mean_ns(rows)
    if not facts.exceeds(spent, facts.thresholds.layout_conv_share):
        return []
    return [Candidate(
        message("Convolutions of contiguous images take {time}.", time=facts.of_step(spent)),
        evidence={"convolutions": len(rows), **facts.part("convolutions", spent)},
        rows=rows,
        transforms=(Scale(rows, _LAST),),
        ceiling_ns=round(spent),
        preconditions=(message("the inputs are contiguous"), message("no device is used")),
        vetoes=(message("inputs whose channels are already the last dimension in memory"),),
        assumptions=assume(channels_last_factor=_LAST),
        risks=(message("Operators without a kernel for this layout convert to the old layout and back."),),
        needs_remedy=True,
    )]  # fmt: skip
