"""TraceMeta of a Paddle profile: what its extra information says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import pyarrow as pa

from perfkit_core.trace import TraceMeta

FRAMEWORK: Final = "paddle"
_UTILISATION: Final = {"System Cpu Utilization": "system", "Process Cpu Utilization": "process"}


def make_meta(processes: Mapping[int, int], extra_info: Mapping[str, str], rank: int | None, **facts: Any) -> TraceMeta:
    """The meta of a cycle; its window is that of its events. ``processes``: the process of each thread that has events;
    ``extra_info`` maps thread ids to names, and names of CPU utilisations to ratios."""
    return TraceMeta(
        framework=FRAMEWORK,
        ranks=() if rank is None else (rank,),
        thread_names=_thread_names(extra_info, processes, rank),
        cpu_utilisation=_utilisation(extra_info),
        **facts,
    )


def processes(events: pa.Table) -> dict[int, int]:
    """Process of each thread that has events."""
    pairs = events.select(["tid", "pid"]).drop_null().group_by(["tid", "pid"]).aggregate([])
    return dict(zip(pairs["tid"].to_pylist(), pairs["pid"].to_pylist(), strict=True))


def _thread_names(extra_info: Mapping[str, str], processes: Mapping[int, int], rank: int | None) -> dict[str, str]:
    """``rank:pid:tid`` → name. A thread without events belongs to the process, when there is only one."""
    only = set(processes.values())
    fallback = only.pop() if len(only) == 1 else None
    names = {}
    for key, name in extra_info.items():
        pid = processes.get(int(key), fallback) if key.isdecimal() else None
        if pid is not None:
            names[f"{'-' if rank is None else rank}:{pid}:{key}"] = name
    return names


def _utilisation(extra_info: Mapping[str, str]) -> dict[str, float]:
    found = {}
    for key, scope in _UTILISATION.items():
        try:
            found[scope] = float(extra_info[key])
        except (KeyError, ValueError):
            continue
    return found
