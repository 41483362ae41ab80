"""View ``collectives``: sizes, bandwidths and algorithms of collectives by group and size class.

Bandwidths are defined as in nccl-tests. The algorithm bandwidth is the size divided by the time. The bus bandwidth is
the algorithm bandwidth times a factor for the load of each link (``bus_factors``). The time of a collective includes
the wait for the last rank. The transfer time is counted from the start of the last rank. It is known only if all
ranks of the group were recorded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np
import numpy.typing as npt
import pandas as pd

from perfkit_core.base.language.messages import message
from perfkit_core.plugins.contracts import View, ViewRequest
from perfkit_core.trace.model.columns import CALLS, MAX, MIN, added_by, count, duration, key, rate, size
from perfkit_core.views.communication import instances, stragglers
from perfkit_core.views.tables import lower_median, no_rows

GROUPINGS: Final = ("size", "rank", "step")
_KEYS: Final = ("collective", "size", "group", "group_size", "algorithm", "protocol")
_TIMES: Final = {
    "calls": "int64", "message_bytes": "Int64", "total_ns": "int64", "min_ns": "int64", "median_ns": "int64",
    "max_ns": "int64", "algorithm_bandwidth_bytes_per_s": "Float64", "bus_bandwidth_bytes_per_s": "Float64",
    "known_transfers": "int64", "transfer_ns": "Int64", "transfer_bus_bandwidth_bytes_per_s": "Float64",
}  # fmt: skip


def merge(partials: Sequence[instances.Partial], request: ViewRequest) -> pd.DataFrame:
    keys = [*(name for name in ("rank", "step") if name in request.by), *_KEYS]
    if not instances.together(partials, "collectives")["chosen"].astype(bool).any():
        return no_rows(dict.fromkeys(keys, "object") | _TIMES)
    calls = stragglers.arrivals(partials)
    calls = calls[calls.pop("chosen").astype(bool)]
    texts = {name: calls[name].astype(object).where(calls[name].notna(), None) for name in ("collective", "group")}
    calls = calls.assign(
        **texts,
        size=calls["bytes"] if "size" in request.by else size_class(calls["bytes"]),
        factor=bus_factors(calls["collective"], calls["group_size"]),
        transfer=stragglers.transfer_ns(calls),
    )
    result = calls.groupby(keys, sort=False, dropna=False)[list(calls.columns)].apply(_numbers).reset_index()
    result = result.astype(_TIMES).sort_values("total_ns", ascending=False, kind="stable", ignore_index=True)
    return result[[*keys, *_TIMES]]


def _numbers(calls: pd.DataFrame) -> pd.Series[float]:
    time, done = calls["dur_ns"], calls[calls["transfer"].notna()]
    sized = calls["bytes"].notna() & (time > 0)
    return pd.Series(
        {
            "calls": len(calls), "message_bytes": lower_median(calls["bytes"]), "total_ns": int(time.sum()),
            "min_ns": int(time.min()), "median_ns": lower_median(time), "max_ns": int(time.max()),
            "algorithm_bandwidth_bytes_per_s": per_second(calls["bytes"][sized], time[sized]),
            "bus_bandwidth_bytes_per_s": per_second((calls["bytes"] * calls["factor"])[sized], time[sized]),
            "known_transfers": len(done), "transfer_ns": lower_median(done["transfer"]),
            "transfer_bus_bandwidth_bytes_per_s": per_second(done["bytes"] * done["factor"], done["transfer"]),
        },
        dtype=object,
    )  # fmt: skip


def per_second(size: pd.Series[float], time: pd.Series[int]) -> float | None:
    total = size.sum(min_count=len(size)) if len(size) else None
    return None if total is None or pd.isna(total) else float(total) / int(time.sum()) * 1e9


_OF_OTHERS: Final = ("all_gather", "reduce_scatter", "all_to_all", "gather", "scatter")
_WHOLE_MESSAGE: Final = ("broadcast", "reduce", "send", "recv")


def bus_factors(collective: pd.Series[str], group_size: pd.Series[int]) -> npt.NDArray[np.float64]:
    """Return the ratio of bus bandwidth to algorithm bandwidth for each collective, shape (rows,). For example, it is
    2 (n - 1) / n for all_reduce on n ranks. It is NaN if n is 1, if the collective is unknown, or if n is unknown and
    needed. Both bandwidths are based on the size of a rank's larger buffer. Source: nccl-tests, doc/PERFORMANCE.md."""
    n = group_size.astype("Float64").to_numpy(np.float64, na_value=np.nan)
    with np.errstate(invalid="ignore", divide="ignore"):
        share = np.where(n > 1, (n - 1) / n, np.nan)
    kinds = (collective.isin(_OF_OTHERS), collective.isin(["all_reduce"]), collective.isin(_WHOLE_MESSAGE) & (n != 1))
    return np.select([kind.to_numpy(np.bool_) for kind in kinds], [share, 2 * share, np.ones(len(n))], np.nan)


_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB")


def size_class(size: pd.Series[int]) -> pd.Series[str]:
    """Return the class of each size, or None if the size is unknown. The bounds of a class are powers of two: ``4 to 8
    MiB`` contains sizes from 4 MiB (inclusive) to 8 MiB (exclusive)."""
    names = {}
    for value in size.dropna().unique():
        exponent = max(int(value).bit_length() - 1, 0)
        unit = min(exponent // 10, len(_UNITS) - 1)
        low = 1 << (exponent - 10 * unit)
        high, unit_of_high = (1, unit + 1) if low == 512 and unit + 1 < len(_UNITS) else (2 * low, unit)
        begin = f"{low}" if unit == unit_of_high else f"{low} {_UNITS[unit]}"
        names[value] = f"{begin} to {high} {_UNITS[unit_of_high]}" if value >= 1 else "0 B"
    return size.map(names).astype(object).where(size.notna(), None)


_NOT_EXECUTED: Final = message(
    "collectives were called, but their execution was not recorded (a group of one rank transfers no data)"
)
_NOTHING: Final = message("no communication between processes was recorded")
COLUMNS: Final = (
    *added_by(("rank", "step")),
    key("collective", "Collective"),
    key("size", "Size", "size class, or the exact size if grouped by size"),
    key("group", "Group"),
    key("group_size", "Group size"),
    key("algorithm", "Algorithm"),
    key("protocol", "Protocol"),
    replace(CALLS, description="calls on all ranks"),
    size("message_bytes", "Message", "median size of a message", heading="size"),
    duration("total_ns", "Total", over="steps"),
    duration("min_ns", "Min", merge=MIN, over="capture"),
    duration("median_ns", "Median"),
    duration("max_ns", "Max", merge=MAX, over="capture"),
    rate("algorithm_bandwidth_bytes_per_s", "Algorithm bandwidth"),
    rate("bus_bandwidth_bytes_per_s", "Bus bandwidth"),
    count("known_transfers", "Known transfers", "calls with a known transfer time", over="steps"),
    duration("transfer_ns", "Transfer", "median time from the last rank's arrival to the end"),
    rate("transfer_bus_bandwidth_bytes_per_s", "Transfer bus bandwidth"),
)

VIEW = View(
    name="collectives",
    title="Collectives",
    description="size, time, algorithm and bandwidth of collectives; the transfer time excludes the wait for the last "
    "rank and is known only if all ranks of the group were recorded",
    table=instances.compared(instances.reduce_each, merge),
    columns=COLUMNS,
    groupings=GROUPINGS,
    order="total_ns",
    explain_empty=lambda trace: _NOT_EXECUTED if trace.rows("kind", "communication").any() else _NOTHING,
)
