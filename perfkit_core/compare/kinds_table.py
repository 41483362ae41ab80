"""Averages of the server steps of two runs side by side, by step kind."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pandas as pd

from perfkit_core.base.language.messages import mark, say
from perfkit_core.compare.comparison import with_difference
from perfkit_core.compare.windows import on_one_clock
from perfkit_core.plugins.contracts import ViewRequest
from perfkit_core.trace.model.report_data import Section
from perfkit_core.trace.model.serving_step import KINDS
from perfkit_core.trace.model.trace import Trace
from perfkit_core.views.steps import serving

_MEASURES: Final = {
    "step_ns": mark("step time"),
    "token_ns": mark("step time per token"),
    "busy_ns": mark("device busy time of a step"),
    "gap_ns": mark("gap before a step"),
    "range_ns": mark("host range of a step"),
}


def kinds_section(runs: Sequence[Sequence[Trace]]) -> Section | None:
    """Return the table of the server steps of two runs by step kind, or None if a run has no server steps. Each run is
    given by its captures (recordings). Steps that the recordings cut are left out."""
    tables = []
    for run in on_one_clock(runs):
        request = ViewRequest()
        table = serving.merge([serving.by_step(trace, request) for trace in run], request)
        if table.empty:
            return None
        tables.append(table.set_index("kind"))
    base, other = tables
    rows = [
        {"kind": kind, "statistic": name, "base_ns": base.loc[kind, measure], "other_ns": other.loc[kind, measure]}
        for kind in KINDS if kind in base.index and kind in other.index
        for measure, name in _MEASURES.items()
    ]  # fmt: skip
    table = pd.DataFrame(rows, columns=["kind", "statistic", "base_ns", "other_ns"])
    table = table[table["base_ns"].notna() & table["other_ns"].notna()].reset_index(drop=True)
    note = say("Averages over the steps of each kind. The tables below compare steps from end to end.")
    compared = with_difference(table.astype({"base_ns": "int64", "other_ns": "int64"}))
    return Section("serving", say("Server steps"), compared, note, say("the runs have no kind of step in common"))
