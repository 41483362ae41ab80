"""The thresholds of all rules. Users override them with ``perfkit advise --threshold loader_share=0.1`` or
``advise(..., thresholds={"loader_share": 0.1})``."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from perfkit_core.errors import UsageError


@dataclass(frozen=True, slots=True)
class Thresholds:
    """Thresholds of the rules. Each comment begins with the numbers of the rules that use the threshold. A share refers
    to the step time, unless the comment says otherwise."""

    severity_high: float = 0.10  # all rules: a saving of at least this share of the step has high severity
    severity_medium: float = 0.03  # all rules: a saving of at least this share has medium severity, a smaller one low
    least_saving: float = 0.001  # all rules: a smaller saving is not shown as advice
    loader_share: float = 0.05  # 10, 13: least time for which the training waits for data
    device_malloc_share: float = 0.01  # 8: least time in calls of the driver, as a share of the steps after the first
    epoch_gap_steps: float = 2.0  # 12: least length of the gap, in steps
    launch_kernel_ns: int = 10_000  # 15: a shorter median kernel takes about as long as its launch
    launch_device_share: float = 0.5  # 15: a device that is busy for longer rarely waits for launches
    chain_kernels: int = 3  # 16: least number of consecutive elementwise kernels
    chain_share: float = 0.02  # 16: least time of the kernels in chains, or of the calls that launch them
    optimizer_tensors: int = 10  # 17, 18: least number of tensors that are processed one by one
    loop_selects: int = 10  # 19: least number of iterations of a loop
    host_gap_share: float = 0.05  # 20: least time in gaps
    host_gap_ns: int = 500_000  # 20: least length of a long gap
    host_gap_one: float = 0.01  # 20: least length of a long gap, as a share of the step
    host_gaps: int = 10  # 20: least number of short gaps in a step, unless one of them takes host_gap_share alone
    host_gap_least_ns: int = 20_000  # 20: least length of a short gap; a shorter gap is overhead of calling operators
    tiny_elements: int = 64  # 1: most elements of a tiny tensor (TensorFlow places such operators on the host)
    tiny_bytes: int = 512  # 1, 2, 6: size of tiny_elements numbers of the largest type
    sync_share: float = 0.02  # 6, 7: least time in calls that wait for a device
    pageable_share: float = 0.01  # 11: least time in copies from pageable memory to a device
    round_trip_bytes: int = 1024  # 3: smaller copies may have the same size by chance
    fallback_bytes: int = 65536  # 5: least size of the copies around an operator on the host
    waiting_ratio: float = 100.0  # 9: least ratio of an operator's longest call to its shortest call
    waiting_overlap: float = 0.8  # 9: least share of the long calls' time in which a device works
    waiting_share: float = 0.02  # 9: least time in the long calls of an operator
    cast_share: float = 0.03  # 21: least time in casts
    multiply_share: float = 0.05  # 22, 23, 24: least time of kernels that multiply matrices
    layout_share: float = 0.05  # 25: least time in layout changes, as a share of the device busy time
    convolution_share: float = 0.3  # 26: least time in convolutions, as a share of the device busy time
    attention_share: float = 0.02  # 27: least device time of unfused attention
    bias_share: float = 0.005  # 28: least time of the bias and its gradient
    memory_share: float = 0.9  # 29: least peak, as a share of the device memory
    busy_share: float = 0.5  # 30: a device that is busy for longer is well used
    exposed_share: float = 0.10  # 31: least exposed communication
    skew_share: float = 0.05  # 34: least difference between the slowest rank and the median of the ranks
    outlier_sigmas: float = 3.0  # 36: least standard deviations above the median (from the median absolute deviation)
    outlier_share: float = 0.05  # 36: least additional time of an outlier, as a share of the median step
    clock_share: float = 0.05  # 36: least relative increase of the time of all kernels from the beginning to the end


def overridden(given: Mapping[str, float]) -> Thresholds:
    """Return the thresholds with the ``given`` values replaced. Raises UsageError for an unknown name, for a negative
    or infinite value, and for a count that is not a whole number."""
    types = {field.name: int if field.type == "int" else float for field in fields(Thresholds)}
    for name, value in given.items():
        if name not in types:
            raise UsageError(f"unknown threshold: {name}", f"choose among {', '.join(types)}")
        if not 0 <= value < math.inf:
            raise UsageError(f"threshold {name}={value}: must be a finite number of 0 or more")
        if types[name](value) != value:
            raise UsageError(f"threshold {name}={value}: must be a whole number")
    numbers: dict[str, Any] = {name: types[name](value) for name, value in given.items()}
    return replace(Thresholds(), **numbers)
