"""How are the columns of a stored file encoded? As was measured to be small and fast to write."""

from __future__ import annotations

import functools
import inspect
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

_FEW_VALUES: Final = frozenset({"rank", "pid", "tid", "stream", "step"})
"""Integers that repeat: a dictionary is smaller than differences."""
_VALUES_AT_ONCE: Final = 1 << 16


def encoding(columns: pa.Schema) -> dict[str, Any]:
    """Options of ``pyarrow.parquet.write_table`` and ``ParquetWriter``.

    Integers as differences (times, row references and ids mostly grow), repeated texts by dictionary, other texts as
    they are. Only integers have statistics: of texts they cost a quarter of the time to write and nobody asks for the
    first name in the alphabet.
    """
    integers = [field.name for field in columns if pa.types.is_integer(field.type)]
    repeated = [field.name for field in columns if pa.types.is_dictionary(field.type)]
    return {
        "compression": "zstd",
        "compression_level": 1,
        "use_dictionary": [*repeated, *(name for name in integers if name in _FEW_VALUES)],
        "column_encoding": {name: "DELTA_BINARY_PACKED" for name in integers if name not in _FEW_VALUES},
        "write_statistics": integers,
        "write_batch_size": _VALUES_AT_ONCE,
        "write_page_index": False,  # row groups that are written apart could not be put together (row_groups.py)
        **_pages(),
    }


@functools.cache
def _pages() -> dict[str, int]:
    """Pages as large as their bytes allow: those of few rows, which newer Arrows write, are slower for everybody."""
    limited = "max_rows_per_page" in inspect.signature(pq.ParquetWriter.__init__).parameters
    return {"max_rows_per_page": 1 << 20} if limited else {}
