"""What does a prediction take for granted, in words? One table; the machine formats keep the names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from perfkit_core.advice import words
from perfkit_core.advice.model import Assumption
from perfkit_core.language import Message, mark, render, say

_TEXTS: Final[Mapping[str, str]] = {
    "batch_every_ns": mark("a batch arrives every {value}"),
    "batch_ns": mark("making a batch takes {value}"),
    "between_factor": mark("the Python between launches takes {value} its time"),
    "call_ns": mark("the call of a pinned copy takes {value}"),
    "casts_left": mark("{value} of the casts stay"),
    "communication_factor": mark("overlapped, communication holds the step up for {value} its time"),
    "conversions_left": mark("{value} of the conversions stay"),
    "copies_left": mark("{value} of the copies that reorder stay"),
    "copy_factor": mark("a copy from pinned memory takes {value} its time"),
    "copy_ns": mark("a copy that is waited for takes {value}"),
    "device_ns": mark("the device takes {value} for each operator"),
    "first_batch_ns": mark("the first batch of a loader still takes {value}"),
    "gap_factor": mark("the gaps take {value} their time"),
    "handover_ns": mark("a batch is handed over in {value}"),
    "kernel_factor": mark("the kernels take {value} their time"),
    "launch_ns": mark("a launch takes {value}"),
    "launches_ns": mark("the launches that are left take {value} together"),
    "longest_kernel_factor": mark("a fused kernel takes {value} the time of the longest of its chain"),
    "making_factor": mark("a worker takes {value} the recorded time to make a batch"),
    "selecting_factor": mark("selecting takes {value} its time"),
    "steps_per_epoch": mark("a loader is begun every {value} steps"),
    "taken_over_ns": mark("taking over a gradient takes {value} each"),
    "turns_factor": mark("computing takes {value} its time once no thread reads ahead"),
}
_OF_RULES: Final[Mapping[tuple[str, str], str]] = {
    ("loader-workers", "host_factor"): mark("the host's own work takes {value} its time beside workers"),
    ("per-tensor-optimizer", "host_factor"): mark("the optimizer takes {value} its time on the host"),
    ("unfused-attention", "device_factor"): mark("the fused kernel takes {value} the time of those it replaces"),
    ("zero-fill-gradients", "device_factor"): mark("adding to gradients takes {value} its time on the device"),
    ("rank-skew", "factor"): mark("what is more on the slow rank takes {value} its time"),
}
"""Where a name means something else in each rule."""
_MOVED: Final = "_on_host_ns"


def told(rule: str, one: Assumption) -> str:
    """One assumption in words, with its value: ``a batch is handed over in 0.1–2 ms``."""
    shown = render(one.value) if isinstance(one.value, (str, Message)) else words.span(one.name, one.value)
    text = _OF_RULES.get((rule, one.name)) or _TEXTS.get(one.name)
    if text is not None:
        return say(text, value=shown)
    if one.name.endswith(_MOVED):
        return say("{operator} takes {value} on the host", operator=one.name.removesuffix(_MOVED), value=shown)
    return shown if isinstance(one.value, (str, Message)) else f"{words.name(one.name)} {shown}"
