"""The schema of the event table. Each row is an event. All frameworks, live recordings and files use this schema.

Times are integer nanoseconds, sizes are bytes, and repeated strings are dictionary encoded. A missing value is null,
never 0. A row reference (``parent``, ``launched_by``) is a row number of the same table, or -1.

The events of a rank are adjacent and sorted by start. Ranks follow one another, also if their times overlap.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Final, TypeAlias

import msgspec
import pyarrow as pa

from perfkit_core.base.algorithms.arrays import TEXT

SCHEMA_VERSION: Final = 2
"""Version of stored files. Files of version 1 have no side tables."""

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
UNKNOWN: Final = "unknown"
"""Kind of an event that the reader cannot interpret. A data-quality warning gives the number and the time of these."""
IMPLAUSIBLE: Final = "implausible"
"""Kind of a record whose times cannot be. The event has the duration 0; ``args`` keeps what was recorded."""

KINDS: Final = (
    STEP, DATALOADER, FORWARD, BACKWARD, OPTIMIZER, OPERATOR, OPERATOR_DETAIL, PYTHON, ANNOTATION, RUNTIME, SYNC,
    KERNEL, MEMCPY, MEMSET, COMMUNICATION, MEMORY, OVERHEAD, COUNTER, OTHER,
    UNKNOWN, IMPLAUSIBLE,
)  # fmt: skip

PHASES: Final = (DATALOADER, FORWARD, BACKWARD, OPTIMIZER, OTHER)
"""Values of ``phase``. The first four are also kinds. An event of such a kind sets the phase of all events in it."""
NESTED_KINDS: Final = frozenset(
    {STEP, DATALOADER, FORWARD, BACKWARD, OPTIMIZER, OPERATOR, OPERATOR_DETAIL, PYTHON, ANNOTATION, RUNTIME, SYNC,
     COMMUNICATION}
)  # fmt: skip
"""Kinds of events that occupy their host thread. They nest. Self times exclude children of these kinds."""
DEVICE_WORK: Final = (KERNEL, MEMCPY, MEMSET)
"""Kinds of events that occupy a device."""
OPERATOR_KINDS: Final = (OPERATOR, COMMUNICATION)

CPU: Final = "cpu"
STATE: Final = "State"
"""Category of memory events that state which blocks are allocated at the end of a recording without a history."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the event table: its Arrow type, whether it may be null, and its meaning."""

    name: str
    type: pa.DataType
    nullable: bool
    meaning: str


COLUMNS: Final = (
    Column("name", TEXT, False, "name that the framework recorded, without a duration that some frameworks append"),
    Column("kind", TEXT, False, "kind of the event: one of " + ", ".join(KINDS)),
    Column("category", TEXT, True, "the framework's own word for the kind (cpu_op, DygraphKernelLaunch, …)"),
    Column("start_ns", pa.int64(), False, "begin on the trace's clock, which Trace.meta.clock describes"),
    Column("dur_ns", pa.int64(), False, "duration; 0 for instants"),
    Column("self_ns", pa.int64(), True, "host events: dur_ns less the union of the direct children; device work: null"),
    Column("rank", pa.int32(), True, "rank of the process in a distributed job"),
    Column("pid", pa.int64(), True, "operating system process; null for device work"),
    Column("tid", pa.int64(), True, "operating system thread; null for device work"),
    Column("device", TEXT, True, "device that the event ran on: cpu, cuda:0, npu:0, …"),
    Column("stream", pa.int64(), True, "stream of the device; null for host events"),
    Column("correlation", pa.int64(), True, "number that a launch shares with its device work"),
    Column("launched_by", pa.int64(), False, "device work: row of the host event that launched it, or -1"),
    Column("parent", pa.int64(), False, "host and memory events: row of the thread's nearest enclosing event, or -1"),
    Column("step", pa.int64(), True, "number of the training step; device work has the step of its launch"),
    Column("phase", TEXT, True, "dataloader, forward, backward, optimizer or other; null if unknown"),
    Column("sequence", pa.int64(), True, "number that a forward operator shares with its backward node"),
    Column("module", TEXT, True, "module path: path of the layer that the event belongs to"),
    Column(
        "bytes",
        pa.int64(),
        True,
        "copies: bytes copied; memory events: bytes allocated, negative if freed; collectives: message size",
    ),
    Column("copy_kind", TEXT, True, "HtoD, DtoH, DtoD, HtoH or PtoP, followed by pageable or pinned if known"),
    Column("address", pa.int64(), True, "memory events: address of the block"),
    Column("total_bytes", pa.int64(), True, "memory events: bytes allocated on the device after the event"),
    Column("shapes", TEXT, True, "input shapes, as JSON text"),
    Column("dtypes", TEXT, True, "input types, as JSON text"),
    Column("stack", TEXT, True, "Python frames at the call, innermost first, separated by ';'"),
    Column("flops", pa.int64(), True, "floating point operations, if the framework counts them"),
    Column("op_name", TEXT, True, "name of the canonical operator, shared by all frameworks; null if unknown"),
    Column("args", pa.string(), True, "all other recorded fields of the event, as JSON text"),
)

Int64: TypeAlias = Annotated[int, msgspec.Meta(ge=1 - 2**63, le=2**63 - 1)]
Size: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
MOST_RANKS: Final = 1 << 20
"""A job has fewer processes. The largest known ones have some 10⁵."""
Rank: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=MOST_RANKS)]
"""Numbers in the metadata of files. Others do not fit the columns of tables."""

SCHEMA: Final = pa.schema([pa.field(c.name, c.type, c.nullable) for c in COLUMNS])
COLUMN_NAMES: Final = tuple(c.name for c in COLUMNS)
