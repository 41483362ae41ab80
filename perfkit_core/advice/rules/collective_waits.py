"""How long did the collectives of each step wait for the last rank, as far as several were recorded?"""

from __future__ import annotations

import pandas as pd

from perfkit_core.analyses.communication.arrivals import arrivals
from perfkit_core.analyses.communication.partials import reduce_each
from perfkit_core.plugins.contracts import ViewRequest
from perfkit_core.trace import Trace


def waited_ns(trace: Trace) -> pd.DataFrame:
    """Columns rank, step, wait_ns, a row for each step of a rank in which a collective of several ranks was matched."""
    found = arrivals(reduce_each(trace, ViewRequest()))[["rank", "step", "wait_ns"]].fillna(-1).astype("int64")
    found = found[found["wait_ns"] >= 0]
    total: pd.DataFrame = found.groupby(["rank", "step"])["wait_ns"].sum().reset_index()
    return total
