"""The thresholds of all rules, in one table that a user can override. ``perfkit advise --threshold loader_share=0.1``,
or ``advise(..., thresholds={"loader_share": 0.1})``."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from perfkit_core.errors import UsageError


@dataclass(frozen=True, slots=True)
class Thresholds:
    """Shares are of the step time unless the comment says otherwise. Comments give the numbers of the rules that use a
    threshold, and its source unless the value is our own choice."""

    severity_high: float = 0.10  # all: a saving of this share of the step has high severity
    severity_medium: float = 0.03  # all: a saving of this share has medium severity, a smaller one low
    least_saving: float = 0.001  # all: a smaller saving is not shown as advice
    loader_share: float = 0.05  # 10, 13: time that the training waits for data
    device_malloc_share: float = 0.01  # 8: of the steps after the first, in calls of the driver
    epoch_gap_steps: float = 2.0  # 12: least length of the gap, in steps
    launch_kernel_ns: int = 10_000  # 15: a median kernel that is shorter takes about as long as its launch
    launch_device_share: float = 0.5  # 15: a device that is busy for longer mostly does not wait for launches
    chain_kernels: int = 3  # 16: least elementwise kernels in a row
    chain_share: float = 0.02  # 16: time of the kernels in chains, or of the calls that launch them
    optimizer_tensors: int = 10  # 17, 18: least tensors that are processed one by one
    loop_selects: int = 10  # 19: least rounds of a loop
    host_gap_share: float = 0.05  # 20: time in gaps
    host_gap_ns: int = 500_000  # 20: a gap of this length is long, whatever host_gap_one says
    host_gap_one: float = 0.01  # 20: a shorter gap is typical of Python between operators
    host_gaps: int = 10  # 20: least short gaps in a step, unless one of them alone takes host_gap_share
    host_gap_least_ns: int = 20_000  # 20: a shorter gap is the recorded overhead of calling an operator
    tiny_elements: int = 64  # 1: most elements of a tiny tensor (TensorFlow pins such operators to the host)
    tiny_bytes: int = 512  # 1, 2, 6: tiny_elements of the largest type, in bytes
    sync_share: float = 0.02  # 6, 7: time in calls that wait for a device
    pageable_share: float = 0.01  # 11: time in copies of pageable memory to a device
    round_trip_bytes: int = 1024  # 3: sizes of smaller copies may be equal by chance
    fallback_bytes: int = 65536  # 5: least size of the copies around an operator on the host
    waiting_ratio: float = 100.0  # 9: longest by shortest call of an operator
    waiting_overlap: float = 0.8  # 9: of its long calls, while a device works
    waiting_share: float = 0.02  # 9: time in the long calls of an operator
    cast_share: float = 0.03  # 21: time in casts
    multiply_share: float = 0.05  # 22, 23, 24: time of kernels that multiply matrices
    layout_share: float = 0.05  # 25: of the time in which the device works
    convolution_share: float = 0.3  # 26: of the time in which the device works
    attention_share: float = 0.02  # 27: time of unfused attention on the device
    bias_share: float = 0.005  # 28: time of the bias and its gradient
    memory_share: float = 0.9  # 29: of the memory of the device
    busy_share: float = 0.5  # 30: time in which the device works
    exposed_share: float = 0.10  # 31: time of communication during which nothing is computed
    skew_share: float = 0.05  # 34: slowest rank less the median of the ranks
    outlier_sigmas: float = 3.0  # 36: standard deviations above the median, by the median absolute deviation
    outlier_share: float = 0.05  # 36: by how much an outlier is longer, as a share of the median step
    clock_share: float = 0.05  # 36: by how much all kernels take longer at the end than at the beginning


def overridden(given: Mapping[str, float]) -> Thresholds:
    """Return the thresholds with the ``given`` values replaced. Raises UsageError for an unknown name, a negative or
    infinite value, and a fraction for a count."""
    types = {field.name: field.type for field in fields(Thresholds)}
    for name, value in given.items():
        if name not in types:
            raise UsageError(f"unknown threshold: {name}", f"choose among {', '.join(types)}")
        if not 0 <= value < math.inf:
            raise UsageError(f"threshold {name}={value}: not a number of 0 or more", "give a number")
        if types[name] == "int" and value != int(value):
            raise UsageError(f"threshold {name}={value}: it counts something", "give a whole number")
    numbers: dict[str, Any] = {
        name: int(value) if types[name] == "int" else float(value) for name, value in given.items()
    }
    return replace(Thresholds(), **numbers)
