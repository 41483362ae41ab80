"""What does a prediction take for granted, in words? One table; the machine formats keep the names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from perfkit_core.advice import words
from perfkit_core.advice.model import Assumption

_TEXTS: Final[Mapping[str, str]] = {
    "batch_every_ns": "a batch arrives every {}",
    "batch_ns": "making a batch takes {}",
    "between_factor": "the Python between launches takes {} its time",
    "call_ns": "the call of a pinned copy takes {}",
    "casts_left": "{} of the casts stay",
    "communication_factor": "overlapped, communication holds the step up for {} its time",
    "conversions_left": "{} of the conversions stay",
    "copies_left": "{} of the copies that reorder stay",
    "copy_factor": "a copy from pinned memory takes {} its time",
    "copy_ns": "a copy that is waited for takes {}",
    "device_ns": "the device takes {} for each operator",
    "first_batch_ns": "the first batch of an epoch still takes {}",
    "gap_factor": "the gaps take {} their time",
    "handover_ns": "a batch is handed over in {}",
    "kernel_factor": "the kernels take {} their time",
    "launch_ns": "a launch takes {}",
    "launches_ns": "the launches that are left take {} together",
    "longest_kernel_factor": "a fused kernel takes {} the time of the longest of its chain",
    "making_factor": "a worker takes {} the recorded time to make a batch",
    "selecting_factor": "selecting takes {} its time",
    "steps_per_epoch": "an epoch has {} steps",
    "taken_over_ns": "taking over a gradient takes {} each",
    "turns_factor": "computing takes {} its time once no thread reads ahead",
}
_OF_RULES: Final[Mapping[tuple[str, str], str]] = {
    ("loader-workers", "host_factor"): "the host's own work takes {} its time beside workers",
    ("per-tensor-optimizer", "host_factor"): "the optimizer takes {} its time on the host",
    ("unfused-attention", "device_factor"): "the fused kernel takes {} the time of those it replaces",
    ("zero-fill-gradients", "device_factor"): "adding to gradients takes {} its time on the device",
    ("rank-skew", "factor"): "what is more on the slow rank takes {} its time",
}
"""Where a name means something else in each rule."""
_MOVED: Final = "_on_host_ns"


def told(rule: str, one: Assumption) -> str:
    """One assumption in words, with its value: ``a batch is handed over in 0.1–2 ms``."""
    shown = one.value if isinstance(one.value, str) else words.span(one.name, one.value)
    text = _OF_RULES.get((rule, one.name)) or _TEXTS.get(one.name)
    if text is not None:
        return text.format(shown)
    if one.name.endswith(_MOVED):
        return f"{one.name.removesuffix(_MOVED)} takes {shown} on the host"
    return shown if isinstance(one.value, str) else f"{words.name(one.name)} {shown}"
