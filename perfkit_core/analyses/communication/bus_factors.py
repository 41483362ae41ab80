"""What share of a message each link carries: from the size of a message over time to what the hardware achieves.

Factors of nccl-tests (doc/PERFORMANCE.md, "Bus Bandwidth"), for a group of n ranks. Its sizes are those of the larger
buffer of a rank.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt
import pandas as pd

_OF_OTHERS: Final = ("all_gather", "reduce_scatter", "all_to_all", "gather", "scatter")
_WHOLE: Final = ("broadcast", "reduce", "send", "recv")


def bus_factors(collective: pd.Series[str], group_size: pd.Series[int]) -> npt.NDArray[np.float64]:
    """Bus bandwidth by algorithm bandwidth, shape (rows,); NaN where the collective or the size of its group is
    unknown, and in a group of one, which moves nothing."""
    n = group_size.astype("Float64").to_numpy(np.float64, na_value=np.nan)
    with np.errstate(invalid="ignore", divide="ignore"):
        others = np.where(n > 1, (n - 1) / n, np.nan)
    factor = np.full(len(n), np.nan)
    factor[collective.isin(_OF_OTHERS).to_numpy()] = others[collective.isin(_OF_OTHERS).to_numpy()]
    factor[(collective == "all_reduce").to_numpy()] = 2 * others[(collective == "all_reduce").to_numpy()]
    factor[collective.isin(_WHOLE).to_numpy() & ~(n == 1)] = 1.0
    return factor
