"""What the host does at an event: the word for it in the account."""

from __future__ import annotations

import re
from typing import Final

import numpy as np

from perfkit_core.base.algorithms import nesting
from perfkit_core.base.algorithms.arrays import BoolArray, ByteArray
from perfkit_core.base.language.messages import mark
from perfkit_core.trace.assembly.first_launches import loading_calls
from perfkit_core.trace.assembly.graph_capture import calls_named
from perfkit_core.trace.model import schema
from perfkit_core.trace.model.cache import once
from perfkit_core.trace.model.trace import Trace

INPUT: Final = mark("input")
ALLOCATION: Final = mark("memory allocation")
CAPTURE: Final = mark("graph capture")
LOADING: Final = mark("loading of kernels")
COMPILING: Final = mark("compilation of operators")
COPYING: Final = mark("copy calls")
SYNCHRONISATION: Final = mark("synchronisation calls")
LAUNCHING: Final = mark("launch calls")
COMMUNICATING: Final = mark("communication calls")
OPERATORS: Final = mark("inside operators")
PYTHON: Final = mark("Python code")
RANGES: Final = mark("ranges without recorded detail")
UNRECORDED: Final = mark("not recorded")
HOST_WORK: Final = (
    UNRECORDED, INPUT, ALLOCATION, CAPTURE, LOADING, COMPILING, COPYING, SYNCHRONISATION, LAUNCHING, COMMUNICATING,
    OPERATORS, PYTHON, RANGES,
)  # fmt: skip

_API: Final = r"(?:cuda|cu|hip|musa|mu|xpu|ze|acl|aclrt)_?(?:Ext|rt)?"
_ALLOCATES: Final = re.compile(
    rf"{_API}(?:Malloc|Free|Host(?:Alloc|Malloc|Free|Register|Unregister)|Mem(?:Alloc|Free|Create|Release|Map|Unmap|Set"
    r"Access|AddressReserve|AddressFree|HostAlloc|HostRegister|PoolTrim))",
    re.IGNORECASE,
)
_CAPTURES: Final = re.compile(rf"{_API}(?:Stream\w*Capture|Graph(?!Launch|ExecLaunch))", re.IGNORECASE)
_LOADS: Final = re.compile(
    rf"{_API}(?:Module(?!Launch)|Library|Link|FuncGetAttributes|RegisterFat|BinaryLoad)", re.IGNORECASE
)
_COMPILES: Final = re.compile(r"(?:aclop|aclgrph|nvrtc|hiprtc)\w*Compile|opCompile$", re.IGNORECASE)
_COPIES: Final = re.compile(rf"{_API}Mem(?:cpy|set|fill)", re.IGNORECASE)


@once
def host_work(trace: Trace) -> ByteArray:
    """Return an index of :data:`HOST_WORK` for each host event, shape (rows,). What lies in a data loader is input."""
    kinds = np.zeros(len(schema.KINDS), np.uint8)
    for word, *names in (
        (SYNCHRONISATION, schema.SYNC), (LAUNCHING, schema.RUNTIME), (COMMUNICATING, schema.COMMUNICATION),
        (OPERATORS, schema.OPERATOR, schema.OPERATOR_DETAIL), (PYTHON, schema.PYTHON), (INPUT, schema.DATALOADER),
        (RANGES, schema.ANNOTATION, schema.FORWARD, schema.BACKWARD, schema.OPTIMIZER),
    ):  # fmt: skip
        kinds[[schema.KINDS.index(name) for name in names]] = HOST_WORK.index(word)
    codes = trace.codes("kind")
    work = codes.lookup(np.array([kinds[schema.KINDS.index(kind)] for kind in codes.values], np.uint8), 0)
    for word, pattern in (
        (COPYING, _COPIES), (ALLOCATION, _ALLOCATES), (CAPTURE, _CAPTURES), (LOADING, _LOADS), (COMPILING, _COMPILES),
    ):  # fmt: skip
        work[calls_named(trace, pattern, schema.RUNTIME, schema.SYNC)] = HOST_WORK.index(word)
    work[loading_calls(trace)] = HOST_WORK.index(LOADING)
    work[loads(trace)] = HOST_WORK.index(INPUT)
    return work


@once
def loads(trace: Trace) -> BoolArray:
    """Return the mask of data loaders and of the events in them, shape (rows,)."""
    loaders = trace.host & trace.rows("kind", schema.DATALOADER)
    return loaders | nesting.lies_in(trace.ints("parent"), loaders)
