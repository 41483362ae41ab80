"""What the vendor of a device records about its tasks: a side table with one row for each kernel that it describes."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from perfkit_core.base.algorithms.arrays import TEXT
from perfkit_core.trace.model.schema import Column
from perfkit_core.trace.model.side_table import ROW, SideTable

TABLE: Final = SideTable(
    "device_tasks",
    "what the vendor of a device records about its kernels",
    (
        ROW,
        Column("type", TEXT, True, "type of the operation that the kernel computes, such as MatMulV2"),
        Column("core", TEXT, True, "unit of the device that the kernel ran on, such as AI_CORE"),
        Column("wait_ns", pa.int64(), True, "time between the end of the kernel before it on its stream and its start"),
        Column("blocks", pa.int64(), True, "number of cores that the kernel was divided over"),
    ),
    not_negative=frozenset({"wait_ns", "blocks"}),
)
