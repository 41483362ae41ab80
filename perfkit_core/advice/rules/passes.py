"""How many backward passes are there to an optimizer step, and does each of them exchange the gradients?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import pandas as pd

from perfkit_core.advice.model import NotEvaluableError
from perfkit_core.analyses.communication.instances import instances
from perfkit_core.analyses.span import rows_of_rank
from perfkit_core.language import say
from perfkit_core.schema import BACKWARD, FORWARD, OPTIMIZER
from perfkit_core.trace import BoolArray, IntArray, Trace

GRADIENTS: Final = ("all_reduce", "reduce_scatter")
"""Collectives that sum gradients."""


@dataclass(frozen=True, slots=True)
class Pass:
    """Of a usual optimizer step: how many backward passes (``count``) exchange how often and how much each (None: not
    known). ``needless``: all collectives but those of the last pass, positions in ``instances``."""

    count: int
    collectives: int
    bytes: int | None
    needless: IntArray


def repeated_passes(trace: Trace) -> Pass | None:
    """None where an optimizer step has one pass that exchanges gradients. Raises NotEvaluableError."""
    talk = instances(trace)
    talk = talk.assign(at=np.arange(len(talk)))[talk["collective"].isin(GRADIENTS).to_numpy(np.bool_)]
    if talk.empty:
        return None
    phases = trace.rows("phase", BACKWARD).any() and trace.rows("phase", OPTIMIZER).any()
    if not phases:
        raise NotEvaluableError(
            say("no optimizer steps or backward passes were recorded: nothing tells what belongs together")
        )
    talk = pd.concat([_placed(trace, part, int(rank)) for rank, part in talk.groupby(talk["rank"].fillna(-1))])
    talk = talk[talk["pass"] >= 0]
    return _usual(talk) if len(talk) else None


def _placed(trace: Trace, talk: pd.DataFrame, rank: int) -> pd.DataFrame:
    """With columns ``pass`` (number of the backward pass in which it is issued; -1: in none) and ``window`` (how many
    optimizer steps came before it)."""
    start, phase = _runs(trace, rank)
    launched_by = trace.ints("launched_by")[talk["row"].to_numpy(np.int64)]
    issue = np.where(launched_by >= 0, trace.ints("start_ns")[launched_by], talk["issue_ns"].to_numpy(np.int64))
    at = np.searchsorted(start, issue, side="right") - 1
    is_backward, is_optimizer = np.append(phase == BACKWARD, False), np.append(phase == OPTIMIZER, False)
    number = np.where(is_backward[at] & (at >= 0), at, -1)
    return talk.assign(**{"pass": number, "window": np.cumsum(is_optimizer)[at]})


def _runs(trace: Trace, rank: int) -> tuple[IntArray, np.ndarray]:
    """When the host of a rank begins with forward, backward or optimizer, in turns: times and phases."""
    chosen: BoolArray = trace.host & trace.rows("phase", FORWARD, BACKWARD, OPTIMIZER)
    of_rank = rows_of_rank(trace, rank)
    rows = np.arange(len(trace))[of_rank]
    rows = rows[chosen[rows]]
    rows = rows[np.argsort(trace.ints("start_ns")[rows], kind="stable")]
    phases = trace.codes("phase")
    code = phases.codes[rows]
    begins = np.flatnonzero(np.diff(code, prepend=-1))
    return trace.ints("start_ns")[rows[begins]], np.array(phases.values, object)[code[begins]]


def _usual(talk: pd.DataFrame) -> Pass | None:
    """What optimizer steps have in common that exchange the same in each of their passes."""
    one = talk.groupby(["rank", "window", "pass"], dropna=False)["bytes"].agg(["size", "sum", "count"]).reset_index()
    window = one.groupby(["rank", "window"], dropna=False)
    same = (window["size"].transform("nunique") == 1) & (window["sum"].transform("nunique") == 1)
    several = one[same & (window["pass"].transform("size") > 1)]
    if len(several) * 2 <= len(one):
        return None
    last = several.groupby(["rank", "window"], dropna=False)["pass"].transform("max")
    early = several[several["pass"] < last]
    keys = ["rank", "window", "pass"]
    needless = talk.merge(early[keys], on=keys)["at"].to_numpy(np.int64)
    count = int(several.groupby(["rank", "window"], dropna=False)["pass"].size().median())
    size = int(several["sum"].median()) if (several["count"] == several["size"]).all() else None
    return Pass(count, int(several["size"].median()), size, needless)
