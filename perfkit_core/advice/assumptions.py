"""What does a prediction take for granted, in words? One table; the machine formats keep the names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from perfkit_core.advice import words
from perfkit_core.advice.model import Assumption
from perfkit_core.language import in_english, say

_TEXTS: Final[Mapping[str, str]] = {
    "batch_every_ns": in_english("a batch arrives every {value}"),
    "batch_ns": in_english("making a batch takes {value}"),
    "between_factor": in_english("the Python between launches takes {value} its time"),
    "call_ns": in_english("the call of a pinned copy takes {value}"),
    "casts_left": in_english("{value} of the casts stay"),
    "communication_factor": in_english("overlapped, communication holds the step up for {value} its time"),
    "conversions_left": in_english("{value} of the conversions stay"),
    "copies_left": in_english("{value} of the copies that reorder stay"),
    "copy_factor": in_english("a copy from pinned memory takes {value} its time"),
    "copy_ns": in_english("a copy that is waited for takes {value}"),
    "device_ns": in_english("the device takes {value} for each operator"),
    "first_batch_ns": in_english("the first batch of a loader still takes {value}"),
    "gap_factor": in_english("the gaps take {value} their time"),
    "handover_ns": in_english("a batch is handed over in {value}"),
    "kernel_factor": in_english("the kernels take {value} their time"),
    "launch_ns": in_english("a launch takes {value}"),
    "launches_ns": in_english("the launches that are left take {value} together"),
    "longest_kernel_factor": in_english("a fused kernel takes {value} the time of the longest of its chain"),
    "making_factor": in_english("a worker takes {value} the recorded time to make a batch"),
    "selecting_factor": in_english("selecting takes {value} its time"),
    "steps_per_epoch": in_english("a loader is begun every {value} steps"),
    "taken_over_ns": in_english("taking over a gradient takes {value} each"),
    "turns_factor": in_english("computing takes {value} its time once no thread reads ahead"),
}
_OF_RULES: Final[Mapping[tuple[str, str], str]] = {
    ("loader-workers", "host_factor"): in_english("the host's own work takes {value} its time beside workers"),
    ("per-tensor-optimizer", "host_factor"): in_english("the optimizer takes {value} its time on the host"),
    ("unfused-attention", "device_factor"): in_english("the fused kernel takes {value} the time of those it replaces"),
    ("zero-fill-gradients", "device_factor"): in_english("adding to gradients takes {value} its time on the device"),
    ("rank-skew", "factor"): in_english("what is more on the slow rank takes {value} its time"),
}
"""Where a name means something else in each rule."""
_MOVED: Final = "_on_host_ns"


def told(rule: str, one: Assumption) -> str:
    """One assumption in words, with its value: ``a batch is handed over in 0.1–2 ms``."""
    shown = one.value if isinstance(one.value, str) else words.span(one.name, one.value)
    text = _OF_RULES.get((rule, one.name)) or _TEXTS.get(one.name)
    if text is not None:
        return say(text, value=shown)
    if one.name.endswith(_MOVED):
        return say("{operator} takes {value} on the host", operator=one.name.removesuffix(_MOVED), value=shown)
    return shown if isinstance(one.value, str) else f"{words.name(one.name)} {shown}"
