"""What one rank contributes to a question about all of them: its collectives and its steps, small enough to be sent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd

from perfkit_core.language.messages import Text, message
from perfkit_core.model.trace import Trace
from perfkit_core.plugins.contracts import ViewRequest
from perfkit_core.views.communication.instances import instances
from perfkit_core.views.communication.matching import matched
from perfkit_core.views.select import in_steps, ranks, selected
from perfkit_core.views.steps.step_rows import step_frame, step_rows

Partial = dict[str, Any]
"""``rank`` (-1: unknown), ``collectives`` (see ``instances``, with a column ``chosen``), ``steps`` (rank, step, dur_ns,
``chosen``), ``world_size``."""


def reduce(trace: Trace, request: ViewRequest) -> Partial:
    """Of a trace of one rank. All collectives are kept, as those that are not asked for still match and align."""
    return reduce_each(trace, request)[0]


def reduce_each(trace: Trace, request: ViewRequest) -> list[Partial]:
    """:func:`reduce` of each rank of a trace, in their order; at least one."""
    chosen, found = selected(trace, request), instances(trace)
    found = found.drop(columns="row").assign(chosen=chosen[found["row"].to_numpy()])
    rows = step_rows(trace)
    steps = step_frame(trace, rows).assign(chosen=in_steps(trace, request)[rows])
    known = sorted({*ranks(trace).tolist(), *trace.meta.ranks}) or [-1]
    world = trace.meta.world_size
    return [
        {"rank": one, "collectives": _of(found, one), "steps": _of(steps, one), "world_size": world} for one in known
    ]


def one_rank_only() -> Text:
    """Why a question about several ranks has no answer."""
    return message("one rank only was recorded: name the recordings of several ranks")


def all_ranks(partials: Sequence[Partial]) -> list[int]:
    """The ranks that were recorded, with and without collectives, ascending."""
    return sorted({partial["rank"] for partial in partials} - {-1})


def all_collectives(partials: Sequence[Partial]) -> pd.DataFrame:
    """The collectives of all ranks, matched (:func:`perfkit_core.views.communication.matching.matched`)."""
    worlds = [partial["world_size"] for partial in partials if partial["world_size"]]
    return matched(together(partials, "collectives"), max(worlds, default=None))


def together(partials: Sequence[Partial], name: str) -> pd.DataFrame:
    """One table of all ranks."""
    frames = [partial[name] for partial in partials]
    kept = [frame for frame in frames if len(frame)] or frames[:1]
    joined: pd.DataFrame = pd.concat(kept, ignore_index=True)
    return joined


def _of(frame: pd.DataFrame, rank: int) -> pd.DataFrame:
    mine: pd.DataFrame = frame[frame["rank"].fillna(-1) == rank]
    return mine.reset_index(drop=True)
