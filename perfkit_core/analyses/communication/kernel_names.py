"""What the name of a collective library's kernel says: the collective, the algorithm, the protocol.

NCCL (and RCCL, which keeps its names): ``ncclKernel_AllReduce_RING_LL_Sum_float``,
``ncclDevKernel_AllReduce_Sum_f32_TREE_LL128``, ``ncclAllReduceRingLLKernel_sum_f32``. Kernels of point-to-point
transfers are all named RING SIMPLE, whatever they do: their names tell nothing.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

_COLLECTIVES: Final = (
    (re.compile(r"all_?reduce", re.I), "all_reduce"),
    (re.compile(r"all_?gather", re.I), "all_gather"),
    (re.compile(r"reduce_?scatter", re.I), "reduce_scatter"),
    (re.compile(r"all_?to_?all", re.I), "all_to_all"),
    (re.compile(r"broadcast", re.I), "broadcast"),
    (re.compile(r"(?:nccl|rccl|xccl|hccl)\w*?reduce", re.I), "reduce"),
)
_ALGORITHM: Final = re.compile(
    r"(?<![A-Za-z])(NVLS_TREE|NVLS|COLLNET_DIRECT|COLLNET_CHAIN|COLLNET|TREE|RING|PAT)(?:_(LL128|LL|SIMPLE))?(?![A-Za-z0-9])"
    r"|(Tree|Ring|CollNet)(LL128|LL)?Kernel"
)
_POINT_TO_POINT: Final = re.compile(r"Send_?Recv", re.I)


class KernelName(NamedTuple):
    """None where the name does not tell."""

    collective: str | None = None
    algorithm: str | None = None
    protocol: str | None = None


def kernel_name(name: str) -> KernelName:
    """The parts of a kernel's name."""
    if _POINT_TO_POINT.search(name):
        return KernelName()
    collective = next((canonical for pattern, canonical in _COLLECTIVES if pattern.search(name)), None)
    match = _ALGORITHM.search(name)
    if not match:
        return KernelName(collective)
    algorithm, protocol, old_algorithm, old_protocol = match.groups()
    if algorithm:
        return KernelName(collective, algorithm, protocol)
    return KernelName(collective, old_algorithm.upper(), old_protocol or "SIMPLE")
