"""The schema of the event table: one row an event, the same for every framework, live or from a file.

Times are integer nanoseconds, sizes are bytes, repeated strings are dictionary encoded. Missing is null, never 0. Row
references (``parent``, ``launched_by``) are row numbers of the same table, -1 without one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from perfkit_core.algorithms.arrays import TEXT

SCHEMA_VERSION: Final = 1

STEP: Final = "step"
DATALOADER: Final = "dataloader"
FORWARD: Final = "forward"
BACKWARD: Final = "backward"
OPTIMIZER: Final = "optimizer"
OPERATOR: Final = "operator"
OPERATOR_DETAIL: Final = "operator_detail"
PYTHON: Final = "python"
ANNOTATION: Final = "annotation"
RUNTIME: Final = "runtime"
SYNC: Final = "sync"
KERNEL: Final = "kernel"
MEMCPY: Final = "memcpy"
MEMSET: Final = "memset"
COMMUNICATION: Final = "communication"
MEMORY: Final = "memory"
OVERHEAD: Final = "overhead"
COUNTER: Final = "counter"
OTHER: Final = "other"

KINDS: Final = (
    STEP, DATALOADER, FORWARD, BACKWARD, OPTIMIZER, OPERATOR, OPERATOR_DETAIL, PYTHON, ANNOTATION, RUNTIME, SYNC,
    KERNEL, MEMCPY, MEMSET, COMMUNICATION, MEMORY, OVERHEAD, COUNTER, OTHER,
)  # fmt: skip

PHASES: Final = (DATALOADER, FORWARD, BACKWARD, OPTIMIZER, OTHER)
"""Values of the ``phase`` column. The first four are also kinds: spans that set the phase of all events inside."""

NESTED_KINDS: Final = frozenset(
    {STEP, DATALOADER, FORWARD, BACKWARD, OPTIMIZER, OPERATOR, OPERATOR_DETAIL, PYTHON, ANNOTATION, RUNTIME, SYNC,
     COMMUNICATION}
)  # fmt: skip
"""Kinds that occupy their host thread: they nest, and count as children in self time."""

DEVICE_WORK: Final = (KERNEL, MEMCPY, MEMSET)
"""Kinds that occupy a device. Their union is the device's busy time."""

OPERATOR_KINDS: Final = (OPERATOR, COMMUNICATION)

CPU: Final = "cpu"


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the event table: its Arrow type, whether it may be null, and its meaning."""

    name: str
    type: pa.DataType
    nullable: bool
    meaning: str


COLUMNS: Final = (
    Column("name", TEXT, False, "as the framework recorded it, without durations that it glued to the name"),
    Column("kind", TEXT, False, "what the event is, one of " + ", ".join(KINDS)),
    Column("category", TEXT, True, "the framework's own word for the kind (cpu_op, DygraphKernelLaunch, …)"),
    Column("start_ns", pa.int64(), False, "begin on the trace's clock; Trace.meta.clock says which clock that is"),
    Column("dur_ns", pa.int64(), False, "duration; 0 for instants"),
    Column("self_ns", pa.int64(), True, "host events: dur_ns less the union of the direct children; null on a device"),
    Column("rank", pa.int32(), True, "rank of the process in a distributed job"),
    Column("pid", pa.int64(), True, "operating system process; null for device work"),
    Column("tid", pa.int64(), True, "operating system thread; null for device work"),
    Column("device", TEXT, True, "where it ran: cpu, cuda:0, npu:0, …"),
    Column("stream", pa.int64(), True, "queue on the device; null on the host"),
    Column("correlation", pa.int64(), True, "the number that a launch shares with the device work it launched"),
    Column("launched_by", pa.int64(), False, "device work: row of the launching host event; -1: none"),
    Column(
        "parent",
        pa.int64(),
        False,
        "host and memory events: row of the nearest enclosing event of the thread; -1: none",
    ),
    Column("step", pa.int64(), True, "number of the training step it belongs to; device work: that of its launch"),
    Column("phase", TEXT, True, "dataloader, forward, backward, optimizer or other; null where unknown"),
    Column("sequence", pa.int64(), True, "links a forward operator with its backward node"),
    Column("module", TEXT, True, "layer path"),
    Column("bytes", pa.int64(), True, "copies: bytes moved; memory events: bytes allocated (negative: freed)"),
    Column("copy_kind", TEXT, True, "HtoD, DtoH, DtoD, HtoH, PtoP, then pageable or pinned where known"),
    Column("address", pa.int64(), True, "memory events: address of the block"),
    Column("total_bytes", pa.int64(), True, "memory events: bytes allocated on that device after the event"),
    Column("shapes", TEXT, True, "input shapes, as JSON text"),
    Column("dtypes", TEXT, True, "input types, as JSON text"),
    Column("stack", TEXT, True, "Python frames at the call, innermost first, separated by ';'"),
    Column("flops", pa.int64(), True, "floating point operations, where the framework counts them"),
    Column("op_name", TEXT, True, "canonical operator shared by all frameworks; null where unknown"),
    Column("args", pa.string(), True, "everything else that was recorded with the event, as JSON text"),
)

SCHEMA: Final = pa.schema([pa.field(c.name, c.type, c.nullable) for c in COLUMNS])
COLUMN_NAMES: Final = tuple(c.name for c in COLUMNS)
