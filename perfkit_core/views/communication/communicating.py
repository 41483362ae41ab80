"""Which events are communication between processes?

On the host: events of kind communication, and operators whose canonical name is a collective. On a device: kernels
launched inside one of them, and kernels that carry the name of a collective library. A host call that launched such
kernels only starts the communication, the kernels are it; a call that launched none (collectives on the CPU) is the
communication itself.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

import numpy as np

from perfkit_core.algorithms import nesting
from perfkit_core.algorithms.arrays import NO_ROW, BoolArray, IntArray
from perfkit_core.model.schema import COMMUNICATION, KERNEL, OPERATOR
from perfkit_core.model.trace import Trace, once

COLLECTIVES: Final = (
    "all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce", "all_to_all", "send", "recv", "barrier",
)  # fmt: skip
"""The canonical operators that communicate."""

_KERNELS: Final = re.compile(
    r"nccl|rccl|xccl|hccl|oneccl|msccl|cross_device_reduce|multimem_all_|(?:one|two)_shot_all_reduce", re.IGNORECASE
)
"""NVIDIA's, AMD's, Kunlun's, Ascend's and Intel's libraries, Microsoft's scheduler; the kernels that inference engines
and symmetric memory use in their place."""


@dataclass(frozen=True, slots=True)
class Communication:
    """Masks of shape (rows,): ``calls`` the outermost host calls, ``host`` those of them that are the communication
    itself, ``device`` the device events that are. ``call``: row of the outermost call that a host event lies in, or
    that launched the device event; -1: none."""

    calls: BoolArray
    host: BoolArray
    device: BoolArray
    call: IntArray


@once
def communication(trace: Trace) -> Communication:
    """The communication of the trace."""
    call = trace.host & (trace.rows("kind", COMMUNICATION) | _collective_operators(trace))
    outermost = nesting.outermost(trace.ints("parent"), call)
    launched_by = trace.ints("launched_by")
    rows = np.flatnonzero(launched_by != NO_ROW)
    around = outermost[launched_by[rows]]
    rows, around = rows[around != NO_ROW], around[around != NO_ROW]
    kernels = trace.rows("kind", KERNEL) & (named_as_collective(trace) | _mask(rows, len(trace)))
    device = kernels | (~trace.host & trace.rows("kind", COMMUNICATION))
    calls = call & ~nesting.lies_in(trace.ints("parent"), call)
    host = calls & ~_mask(around[device[rows]], len(trace))
    outermost[rows] = around
    return Communication(calls, host, device, outermost)


@once
def named_as_collective(trace: Trace) -> BoolArray:
    """True where the name is that of a collective library's kernel."""
    names = trace.codes("name")
    known = np.fromiter((_KERNELS.search(name) is not None for name in names.values), np.bool_, len(names.values))
    found: BoolArray = names.lookup(known, False)
    return found


def _collective_operators(trace: Trace) -> BoolArray:
    return trace.rows("kind", OPERATOR) & trace.rows("op_name", *COLLECTIVES)


def _mask(rows: IntArray, count: int) -> BoolArray:
    mask = np.zeros(count, np.bool_)
    mask[rows] = True
    return mask
