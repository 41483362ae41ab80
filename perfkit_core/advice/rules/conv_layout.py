"""Rule 46, conv-layout: convolutions on the host read images in the layout NCHW.
Detected: convolutions whose inputs are contiguous, without a device.
Predicted: the step time in the layout NHWC (channels last)."""

from __future__ import annotations

from typing import Final

import pyarrow.compute as pc

from perfkit_core.advice.operators import Shapes, operator_order, per_row
from perfkit_core.advice.rule_input import Candidate, NotEvaluableError, RuleInput, assume
from perfkit_core.base.language.messages import message
from perfkit_core.replay.transforms import Quantity, Scale

_LAST: Final = Quantity(0.6, 0.85, 1.0, message("estimate: the library reorders fewer inputs and results"))
_IMAGE: Final = 4
"""Number of dimensions of a batch of images."""
_CHANNELS_LAST: Final = r'"Input Strides":\s*\[\[\d+,\s*1,'
_MOST: Final = 0.5
"""If more than this share of the inputs has its channels last, the training uses this layout already."""
_CONVOLUTIONS: Final = ("conv", "conv_grad")


def find(facts: RuleInput) -> list[Candidate]:
    if facts.on_device:
        return []
    trace, order = facts.trace, operator_order(facts.trace)
    if not trace.has_values("shapes"):
        raise NotEvaluableError(message("no shapes were recorded"), message("record shapes (record_shapes=True)"))
    here = order.row[facts.in_steps[order.row]]
    convolutions = here[trace.rows("op_name", *_CONVOLUTIONS)[here]]
    images = per_row(trace, convolutions, lambda shapes: bool(shapes) and len(shapes[0]) == _IMAGE, False)
    rows = convolutions[images | trace.rows("op_name", "conv_grad")[convolutions]]
    if not images.any() or per_row(trace, convolutions, _is_depthwise, False).any():
        return []
    last = pc.match_substring_regex(trace.pick("args", convolutions[images]), _CHANNELS_LAST)
    if (pc.mean(last).as_py() or 0) > _MOST:
        return []
    spent = facts.mean_ns(rows)
    if not facts.exceeds(spent, facts.thresholds.layout_conv_share):
        return []
    return [Candidate(
        message("Convolutions read images in the layout NCHW. They take {time}.", time=facts.of_step(spent)),
        evidence={"convolutions": len(rows), **facts.part("convolutions", spent)},
        rows=rows,
        transforms=(Scale(rows, _LAST),),
        ceiling_ns=round(spent),
        preconditions=(message("the inputs are contiguous"), message("no device is used")),
        vetoes=(
            message("inputs whose channels are already the last dimension in memory"),
            message("depthwise convolutions, which were slower in this layout"),
        ),
        assumptions=assume(channels_last_factor=_LAST),
        risks=(message("Operators without a kernel for this layout convert to the old layout and back."),),
        needs_remedy=True,
    )]  # fmt: skip


def _is_depthwise(shapes: Shapes) -> bool:
    """Return whether a convolution has one input channel for each filter, and several channels in all."""
    return len(shapes) > 1 and len(shapes[1]) == _IMAGE and shapes[1][1] == 1 < shapes[0][1]
