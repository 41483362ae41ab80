"""With which parameters was a kernel launched: grid, block, registers, shared memory, occupancy as recorded?"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from perfkit_core.trace import IntArray, Trace

_GRID: Final = r'"{} ?": ?\[ ?(?P<found>\d+, ?\d+, ?\d+) ?\]'
_NUMBER: Final = r'"(?:{})": ?(?P<found>\d{{1,18}})\b'
_SHARE: Final = r'"(?:est\.|theoretical) achieved occupancy %": ?(?P<found>\d{1,6}(?:\.\d{1,9})?)'


def parameters(trace: Trace, rows: IntArray) -> dict[str, Any]:
    """Columns grid, block (``x,y,z``), registers (of a thread), shared_bytes (of a block), occupancy_ratio, null where
    it was not recorded. Shape (len(rows),)."""
    encoded = trace.pick("args", rows).dictionary_encode()
    texts = encoded.dictionary
    code = pc.fill_null(encoded.indices, -1).to_numpy(zero_copy_only=False)
    return {
        "grid": _spread(_found(texts, _GRID.format("grid")), code),
        "block": _spread(_found(texts, _GRID.format("block")), code),
        "registers": _integers(_found(texts, _NUMBER.format("registers per thread")), code),
        "shared_bytes": _integers(_found(texts, _NUMBER.format("shared memory")), code),
        "occupancy_ratio": _share(_found(texts, _SHARE), code),
    }


def _found(texts: pa.Array, pattern: str) -> pa.Array:
    return pc.struct_field(pc.extract_regex(texts.cast(pa.string()), pattern), "found")


def _spread(values: pa.Array, code: IntArray) -> pd.Categorical:
    encoded = values.dictionary_encode()
    codes = np.append(pc.fill_null(encoded.indices, -1).to_numpy(zero_copy_only=False), -1)
    return pd.Categorical.from_codes(codes[code], categories=encoded.dictionary.to_pylist())


def _integers(values: pa.Array, code: IntArray) -> pd.arrays.IntegerArray:
    numbers = pc.fill_null(values.cast(pa.int64()), -1).to_numpy(zero_copy_only=False)
    spread = np.append(numbers, -1)[code]
    return pd.arrays.IntegerArray(np.maximum(spread, 0).astype(np.int64), spread < 0)


def _share(values: pa.Array, code: IntArray) -> Any:
    percent = values.cast(pa.float64()).to_numpy(zero_copy_only=False)
    return np.append(percent, np.nan)[code] / 100
