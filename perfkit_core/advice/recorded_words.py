"""What does a recording tell that a remedy depends on: which half type do its devices multiply, whose runtime is it?"""

from __future__ import annotations

import re
from typing import Final

import numpy as np

from perfkit_core.advice.evidence.device_capabilities import tensor_cores
from perfkit_core.advice.evidence.kernels import kernels
from perfkit_core.advice.model import NotEvaluableError
from perfkit_core.schema import BACKWARD, OPTIMIZER, RUNTIME, SYNC
from perfkit_core.trace import Trace

BFLOAT16, FLOAT16, UNKNOWN = "bfloat16", "float16", "unknown"
_RUNTIMES: Final = ("cuda", "hip")
_HIP_DEVICE: Final = re.compile(r"Instinct|Radeon|AMD")
_CLOCKS: Final = {"cuda": "nvidia-smi -q -d CLOCK,PERFORMANCE", "hip": "amd-smi metric --clock"}
_SHORT: Final = {BFLOAT16: "bf16", FLOAT16: "fp16"}


def recorded_words(trace: Trace) -> dict[str, str]:
    """Words for remedies, each known or ``unknown``: ``half`` (``bfloat16``, ``float16``), ``half_short`` (``bf16``),
    ``device`` (its name), ``runtime`` (``cuda``, ``hip``; ``none`` without work on a device), ``clocks`` (the command
    that tells a device's clocks), ``training`` (``yes``, ``no``: whether anything was computed backward or updated)."""
    runtime, type_ = _runtime(trace), _half(trace)
    device = next((one.name for one in trace.meta.devices if one.name), "the device")
    return {
        "half": type_, "half_short": _SHORT.get(type_, "bf16"), "device": device, "runtime": runtime,
        "clocks": _CLOCKS.get(runtime, "the vendor's tool"), "training": _training(trace),
    }  # fmt: skip


def _training(trace: Trace) -> str:
    """Where no phases were recorded, nothing tells that it was none."""
    if not trace.known("phase"):
        return UNKNOWN
    return "yes" if (trace.rows("phase", BACKWARD, OPTIMIZER)).any() else "no"


def _half(trace: Trace) -> str:
    """Hosts multiply bfloat16, all of them in software at least."""
    if not trace.meta.devices and not len(kernels(trace)):
        return BFLOAT16
    try:
        return BFLOAT16 if tensor_cores(trace.meta.devices).bfloat16 else FLOAT16
    except NotEvaluableError:
        return UNKNOWN


def _runtime(trace: Trace) -> str:
    """By the calls that were recorded, else by the name of the device."""
    names = trace.codes("name")
    codes = np.unique(names.codes[trace.rows("kind", RUNTIME, SYNC)])
    called = {names.values[code].lower() for code in codes if code >= 0}
    for runtime in _RUNTIMES:
        if any(name.startswith(runtime) for name in called):
            return runtime
    devices = [one.name or "" for one in trace.meta.devices]
    if any(_HIP_DEVICE.search(name) for name in devices):
        return "hip"
    return UNKNOWN if devices or len(kernels(trace)) else "none"
