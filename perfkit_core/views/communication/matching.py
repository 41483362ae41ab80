"""Which collectives of different ranks are one and the same?

The collectives of a group are issued in the same order by all its ranks. They are matched by the number that the
library gave them, else by their place within the step (without steps: within the recording), and then checked: the same
collective everywhere and, where all ranks must give as much, the same size. From the first that differs on, nothing of
that step and group is matched. Transfers between two ranks are of no group, and are not matched.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pandas as pd

from perfkit_core.views.communication.communicating import COLLECTIVES

UNMATCHED: Final = -1
POINT_TO_POINT: Final = ("send", "recv")
_SAME_SIZE: Final = ("all_reduce", "broadcast", "reduce", "all_gather", "reduce_scatter")
_GROUP: Final = ["group", "members"]
_PLACE: Final = [*_GROUP, "anchor"]


def matched(found: pd.DataFrame, world_size: int | None) -> pd.DataFrame:
    """The collectives of all ranks (see ``instances``) with ``match`` (a number that the same collective has on all
    ranks, -1: not matched), ``of_ranks`` (ranks that recorded it), ``complete`` (all ranks of its group did) and
    ``group_size`` filled where no group is told but the whole world of processes took part."""
    found = found.assign(match=np.int64(UNMATCHED))
    wide = found[
        found["collective"].isin(COLLECTIVES) & ~found["collective"].isin(POINT_TO_POINT) & found["rank"].notna()
    ]
    wide = wide.assign(**_places(wide))
    wide = wide.assign(order=wide.groupby(["rank", *_PLACE], sort=False).cumcount())
    wide = wide[~_differs(wide)]
    found.loc[wide.index, "match"] = wide.groupby([*_PLACE, "order"], sort=False).ngroup()
    return _counted(found, world_size)


def _places(wide: pd.DataFrame) -> dict[str, pd.Series[str]]:
    """Texts without missing values, as missing is a value here: the library's number, else the step."""
    by_number = wide["sequence"].notna()
    anchor = wide["sequence"].where(by_number, wide["step"]).fillna(-1).astype(str)
    names = {name: wide[name].fillna("") for name in _GROUP}
    return {**names, "anchor": anchor.where(~by_number, "#" + anchor)}


def _differs(wide: pd.DataFrame) -> pd.Series[bool]:
    """True from the first collective of a place on that is not the same on all ranks."""
    keys = [*_PLACE, "order"]
    size = wide["bytes"].where(wide["collective"].isin(_SAME_SIZE)).fillna(-1).astype("int64")
    grouped = wide.assign(size=size).groupby(keys, sort=False)
    apart = (grouped["collective"].transform("nunique") > 1) | (grouped["size"].transform("nunique") > 1)
    first = wide["order"].where(apart).groupby([wide[name] for name in _PLACE]).transform("min")
    return wide["order"] >= first.fillna(np.inf)


def _counted(found: pd.DataFrame, world_size: int | None) -> pd.DataFrame:
    is_matched = found["match"] != UNMATCHED
    of_ranks = found.groupby("match")["rank"].transform("nunique").astype("int64").where(is_matched, 1)
    everybody = is_matched & found["group_size"].isna() & found["group"].isna() & (of_ranks == (world_size or 0))
    size = found["group_size"].where(~everybody, of_ranks)
    complete = (is_matched & (of_ranks == size)).fillna(False).astype(bool)
    return found.assign(of_ranks=of_ranks, group_size=size, complete=complete)
