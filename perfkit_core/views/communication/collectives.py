"""What do the collectives move, how fast, and by which algorithm?

A row is a collective of a group in a class of message sizes. Bandwidths are those of nccl-tests: algorithm bandwidth is
the size of the message over the time, bus bandwidth corrects it by what the collective must send over each link
(``bus_factors``). As recorded, the time is that on each rank, waiting for the last rank included; ``transfer`` begins
when the last rank has come, and needs the recordings of all ranks of the group.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np
import numpy.typing as npt
import pandas as pd

from perfkit_core.errors import UsageError
from perfkit_core.language.messages import Text, message
from perfkit_core.model.columns import CALLS, MAX, MIN, added_by, count, duration, key, rate, size
from perfkit_core.model.trace import Trace
from perfkit_core.plugins.contracts import Reduction, View, ViewRequest
from perfkit_core.views.communication.arrivals import arrivals, transfer_ns
from perfkit_core.views.communication.partials import Partial, reduce, reduce_each
from perfkit_core.views.tables import lower_median

GROUPINGS: Final = ("size", "rank", "step")
_KEYS: Final = ("collective", "size", "group", "group_size", "algorithm", "protocol")
_TIMES: Final = {
    "calls": "int64", "message_bytes": "Int64", "total_ns": "int64", "min_ns": "int64", "median_ns": "int64",
    "max_ns": "int64", "algorithm_bandwidth_bytes_per_s": "Float64", "bus_bandwidth_bytes_per_s": "Float64",
    "known_transfers": "int64", "transfer_ns": "Int64", "transfer_bus_bandwidth_bytes_per_s": "Float64",
}  # fmt: skip


def table(trace: Trace, request: ViewRequest) -> pd.DataFrame:
    """One row a collective, size and group; see :data:`COLUMNS`. NA: not known."""
    return merge(reduce_each(trace, request), request)


def merge(partials: Sequence[Partial], request: ViewRequest) -> pd.DataFrame:
    """The table of any number of ranks."""
    unknown = set(request.by) - set(GROUPINGS)
    if unknown:
        raise UsageError(f"{VIEW.name} cannot be grouped by {sorted(unknown)[0]!r}", f"known: {', '.join(GROUPINGS)}")
    found = arrivals(partials)
    found = _measured(found[found.pop("chosen").astype(bool)], exact="size" in request.by)
    keys = [*(name for name in ("rank", "step") if name in request.by), *_KEYS]
    if found.empty:
        return pd.DataFrame(columns=[*keys, *_TIMES]).astype(_TIMES)
    result = found.groupby(keys, sort=False, dropna=False)[list(found.columns)].apply(_row).reset_index()
    result = result.astype(_TIMES).sort_values("total_ns", ascending=False, kind="stable", ignore_index=True)
    return result[[*keys, *_TIMES]]


def _measured(found: pd.DataFrame, exact: bool) -> pd.DataFrame:
    """With the columns that the sums are made of: factor (bus by algorithm bandwidth), transfer."""
    factor = bus_factors(found["collective"], found["group_size"])
    names = {name: found[name].astype(object).where(found[name].notna(), None) for name in ("collective", "group")}
    size = found["bytes"] if exact else size_class(found["bytes"])
    return found.assign(**names, size=size, factor=factor, transfer=transfer_ns(found))


def _row(calls: pd.DataFrame) -> pd.Series[float]:
    """The numbers of one group of calls."""
    time, done = calls["dur_ns"], calls[calls["transfer"].notna()]
    sized = calls["bytes"].notna() & (time > 0)
    return pd.Series(
        {
            "calls": len(calls), "message_bytes": lower_median(calls["bytes"]), "total_ns": int(time.sum()),
            "min_ns": int(time.min()), "median_ns": lower_median(time), "max_ns": int(time.max()),
            "algorithm_bandwidth_bytes_per_s": _per_second(calls["bytes"][sized], time[sized]),
            "bus_bandwidth_bytes_per_s": _per_second((calls["bytes"] * calls["factor"])[sized], time[sized]),
            "known_transfers": len(done), "transfer_ns": lower_median(done["transfer"]),
            "transfer_bus_bandwidth_bytes_per_s": _per_second(done["bytes"] * done["factor"], done["transfer"]),
        },
        dtype=object,
    )  # fmt: skip


def _per_second(size: pd.Series[float], time: pd.Series[int]) -> float | None:
    total = size.sum(min_count=len(size)) if len(size) else None
    return None if total is None or pd.isna(total) else float(total) / int(time.sum()) * 1e9


def _explain(trace: Trace) -> Text:
    if trace.rows("kind", "communication").any():
        return message(
            "collectives were called, but nothing that carries them out was recorded (a group of one moves nothing)"
        )
    return message("no communication between processes was recorded")


_OF_OTHERS: Final = ("all_gather", "reduce_scatter", "all_to_all", "gather", "scatter")
_WHOLE: Final = ("broadcast", "reduce", "send", "recv")


def bus_factors(collective: pd.Series[str], group_size: pd.Series[int]) -> npt.NDArray[np.float64]:
    """Bus bandwidth by algorithm bandwidth, shape (rows,): what share of a message each link carries. NaN where the
    collective or the size of its group is unknown, and in a group of one, which moves nothing.

    Factors of nccl-tests (doc/PERFORMANCE.md, "Bus Bandwidth"), for a group of n ranks. Its sizes are those of the
    larger buffer of a rank.
    """
    n = group_size.astype("Float64").to_numpy(np.float64, na_value=np.nan)
    with np.errstate(invalid="ignore", divide="ignore"):
        others = np.where(n > 1, (n - 1) / n, np.nan)
    factor = np.full(len(n), np.nan)
    factor[collective.isin(_OF_OTHERS).to_numpy()] = others[collective.isin(_OF_OTHERS).to_numpy()]
    factor[(collective == "all_reduce").to_numpy()] = 2 * others[(collective == "all_reduce").to_numpy()]
    factor[collective.isin(_WHOLE).to_numpy() & ~(n == 1)] = 1.0
    return factor


_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def size_class(size: pd.Series[int]) -> pd.Series[str]:
    """Powers of two, as benchmarks of collectives use them: ``4 to 8 MiB`` holds sizes from 4 MiB (included) to 8 MiB
    (not); None where the size is unknown."""
    distinct = {value: _name(int(value)) for value in size.dropna().unique()}
    return size.map(distinct).astype(object).where(size.notna(), None)


def _name(size: int) -> str:
    if size < 1:
        return "0 B"
    exponent = size.bit_length() - 1
    unit = min(exponent // 10, len(_UNITS) - 1)
    low = 1 << (exponent - 10 * unit)
    high, unit_of_high = (1, unit + 1) if low == 512 and unit + 1 < len(_UNITS) else (2 * low, unit)
    if unit == unit_of_high:
        return f"{low} to {high} {_UNITS[unit]}"
    return f"{low} {_UNITS[unit]} to {high} {_UNITS[unit_of_high]}"


COLUMNS: Final = (
    *added_by(("rank", "step")),
    key("collective", "Collective"),
    key("size", "Size", description="class of sizes; by size exact bytes"),
    key("group", "Group"),
    key("group_size", "Group size"),
    key("algorithm", "Algorithm"),
    key("protocol", "Protocol"),
    replace(CALLS, description="on all ranks"),
    size("message_bytes", "Message", noun="size", description="median"),
    duration("total_ns", "Total", per_step=True),
    duration("min_ns", "Min", merge=MIN, of_capture=True),
    duration("median_ns", "Median"),
    duration("max_ns", "Max", merge=MAX, of_capture=True),
    rate("algorithm_bandwidth_bytes_per_s", "Algorithm bandwidth"),
    rate("bus_bandwidth_bytes_per_s", "Bus bandwidth"),
    count("known_transfers", "Known transfers", per_step=True, description="calls of which the transfer is known"),
    duration("transfer_ns", "Transfer", description="median, from when the last rank has come"),
    rate("transfer_bus_bandwidth_bytes_per_s", "Transfer bus bandwidth"),
)

VIEW = View(
    name="collectives",
    title="Collectives",
    description="size, time, algorithm and bandwidth of the communication between processes; their transfer alone "
    "where all ranks of the group were recorded",
    table=table,
    columns=COLUMNS,
    groupings=GROUPINGS,
    order="total_ns",
    explain_empty=_explain,
    reduction=Reduction(reduce, merge),
)
