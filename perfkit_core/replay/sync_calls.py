"""Which calls of the host synchronise, and with what: a device, a stream, an event?"""

from __future__ import annotations

import re
from typing import Final

import numpy as np
import numpy.typing as npt

from perfkit_core.schema import RUNTIME, SYNC
from perfkit_core.trace import IntArray, Trace

DEVICE: Final = 0
STREAM: Final = 1
EVENT: Final = 2
_OF_DEVICE: Final = re.compile(
    r"(Device|Ctx|Context)_?Synchronize|Free(?!Async)|HostUnregister|ModuleUnload", re.IGNORECASE
)
_OF_EVENT: Final = re.compile(r"Event_?Synchronize", re.IGNORECASE)
_FREES: Final = re.compile(r"^(cuda|hip|cu|musa|acl\w*)Free(?!Async)", re.IGNORECASE)
"""Freeing device memory waits until the device is idle."""


def sync_calls(trace: Trace) -> tuple[IntArray, npt.NDArray[np.int8]]:
    """Rows of the calls of the host that synchronise, and the scope of each: DEVICE, STREAM or EVENT."""
    names = trace.codes("name")
    frees = names.lookup(np.array([bool(_FREES.search(name)) for name in names.values], np.bool_), False)
    rows = np.flatnonzero(trace.host & (trace.rows("kind", SYNC) | (trace.rows("kind", RUNTIME) & frees)))
    scope = np.array([_scope(name) for name in names.values], np.int8)
    return rows, scope[names.codes[rows]]


def _scope(name: str) -> int:
    if _OF_DEVICE.search(name):
        return DEVICE
    return EVENT if _OF_EVENT.search(name) else STREAM
