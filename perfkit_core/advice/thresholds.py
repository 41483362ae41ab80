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
    """Thresholds of the rules. Each comment begins with the numbers of the rules that use the threshold."""

    severity_high: float = 0.10  # all rules: least saving of high severity, as a share of the step time
    severity_medium: float = 0.03  # all rules: least saving of medium severity, as a share of the step time
    least_saving: float = 0.001  # all rules: a saving up to this share of the step time is not shown as advice
    loader_share: float = 0.05  # rules 10, 13: loading is slow if it takes more than this share of the step time
    device_malloc_share: float = 0.01  # rule 8: least share of the step time in driver allocations after the first step
    epoch_gap_steps: float = 2.0  # rule 12: least additional wait at the start of an epoch, as a number of step times
    launch_share: float = 0.1  # rule 15: the device waits for launching calls for more than this share of the step time
    chain_kernels: int = 3  # rule 16: least number of consecutive elementwise kernels in a chain
    chain_share: float = 0.02  # rule 16: least share of the step time in chained kernels or in the launches saved
    chain_operators: int = 4  # rule 16: least number of consecutive elementwise operators in a chain on the host
    chain_host_share: float = 0.1  # rule 16: least share of the step time in such chains and their backward pass
    optimizer_tensors: int = 10  # rules 17, 18: least number of tensors that are processed one by one
    foreach_share: float = 0.1  # rule 17: an update with operators on lists takes more than this share of the step
    loop_rounds: int = 4  # rule 37: least number of rounds of a loop
    loop_share: float = 0.05  # rule 37: a loop takes more than this share of the step time
    micro_batches: int = 2  # rule 38: least number of backward passes in a step
    double_share: float = 0.05  # rule 39: operators in double precision take more than this share of the step time
    emulated_share: float = 0.05  # rule 40: operators in emulated precision take more than this share of the step time
    autograd_share: float = 0.2  # rule 41: operators that keep their inputs take more than this share of the step time
    constants_share: float = 0.02  # rule 42: computing constants takes more than this share of the step time
    conversion_ns: int = 50_000  # rule 43: least time to make a tensor from Python objects
    conversion_share: float = 0.03  # rule 43: making tensors from Python objects takes more than this share of the step
    save_share: float = 0.03  # rule 44: writing checkpoints, logs and statistics takes more than this share of the step
    compile_share: float = 0.05  # rule 35: sampled compilations take more than this share of the mean step time
    repeated_share: float = 0.02  # rule 47: the repeated operators take more than this share of the step time
    recomputed_share: float = 0.02  # rule 55: computing the forward pass again takes more than this share of the step
    decode_gap_share: float = 0.1  # rule 49: gaps before decode steps take more than this share of their time
    decode_launch_share: float = 0.1  # rule 50: in decode steps, the device is idle for more than this share
    decode_requests: int = 16  # rule 51: a decode step has at most this many requests on average
    layout_conv_share: float = 0.2  # rule 46: convolutions take more than this share of the step time
    loop_selects: int = 10  # rule 19: least number of iterations of a loop
    host_gap_share: float = 0.05  # rules 20, 48, 53: long gaps take more than this share of the step time
    host_gap_ns: int = 500_000  # rules 20, 53: a long gap takes at least this time, and host_gap_one of the step
    host_gap_one: float = 0.01  # rule 20: a long gap takes at least this share of the step time
    host_gap_least_ns: int = 20_000  # rule 48: shorter gaps are overhead of operator calls
    tiny_elements: int = 64  # rule 1: maximum number of elements of a tiny tensor (TensorFlow keeps these on the host)
    tiny_bytes: int = 512  # rules 1, 2, 6: maximum size of a small copy in bytes (64 numbers of 8 bytes)
    sync_share: float = 0.02  # rules 6, 7: least share of the step time in calls that wait for a device
    pageable_share: float = 0.01  # rule 11: least share of the step time in copies from pageable memory to a device
    round_trip_bytes: int = 1024  # rule 3: least bytes of a copy; two smaller copies may have equal sizes by chance
    fallback_bytes: int = 65536  # rule 5: least size in bytes of the copies around an operator on the host
    waiting_ratio: float = 100.0  # rule 9: least ratio of an operator's longest call to its shortest call
    waiting_overlap: float = 0.8  # rule 9: least share of an operator's long calls in which a device does other work
    waiting_share: float = 0.02  # rule 9: least share of the step time in the long calls of an operator
    cast_share: float = 0.03  # rule 21: least share of the step time in casts
    multiply_share: float = 0.05  # rules 22, 23, 24: least share of the step time in kernels that multiply matrices
    layout_share: float = 0.05  # rule 25: least share of the device busy time in layout changes
    convolution_share: float = 0.3  # rule 26: least share of the device busy time in convolutions
    attention_share: float = 0.02  # rule 27: least share of the step time in unfused attention (device time)
    bias_share: float = 0.005  # rule 28: least share of the step time in adding a bias and computing its gradient
    memory_share: float = 0.9  # rule 29: least peak of allocated memory, as a share of the device memory
    copy_share: float = 0.05  # rule 52: exposed copies of one direction take more than this share of the step time
    exposed_share: float = 0.10  # rule 31: least share of the step time in exposed communication
    skew_share: float = 0.05  # rule 34: least excess of the slowest over the median rank, as a share of the step time
    slow_share: float = 0.05  # rule 56: slow kernels of an operator take more than this share of the step time
    slow_busy: float = 0.5  # rule 56: the device is busy for at least this share of the step time
    slow_ratio: float = 0.4  # rule 56: slow kernels reach less than this share of a peak rate of the device
    slow_kernel_ns: int = 20_000  # rule 56: in shorter kernels, the start takes a considerable part of the time
    outlier_sigmas: float = 3.0  # rule 36: least distance of an outlier from the median, in standard deviations
    outlier_share: float = 0.05  # rule 36: least additional time of an outlier, as a share of the median step


def overridden(overrides: Mapping[str, float]) -> Thresholds:
    """Return the default thresholds, overridden by ``overrides``. Raises UsageError for an unknown name, a
    negative or infinite value, and a count that is not a whole number."""
    types = {field.name: int if field.type == "int" else float for field in fields(Thresholds)}
    for name, value in overrides.items():
        if name not in types:
            raise UsageError(f"unknown threshold: {name}", f"choose among {', '.join(types)}")
        if not 0 <= value < math.inf:
            raise UsageError(f"threshold {name}={value}: must be a finite number of 0 or more")
        if types[name](value) != value:
            raise UsageError(f"threshold {name}={value}: must be a whole number")
    numbers: dict[str, Any] = {name: types[name](value) for name, value in overrides.items()}
    return replace(Thresholds(), **numbers)
