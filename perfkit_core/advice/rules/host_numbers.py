"""On how many cores, with how many threads and processes was a recording made?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from perfkit_core.advice.facts import Facts
from perfkit_core.recording.host import CORES, HOST, PROCESSES, THREADS

_NAMES: Final = {
    CORES: ("cores", "cpu_count", "cpu_cores"),
    THREADS: ("threads", "num_threads", "intra_op_threads", "omp_num_threads"),
    PROCESSES: ("processes", "local_world_size"),
}


def recorded(facts: Facts, what: str) -> int | None:
    """A number of the recording; None where it holds none."""
    meta = facts.trace.meta
    places: list[Mapping[str, Any]] = [meta.options, meta.extra]
    inner = meta.extra.get(HOST)
    if isinstance(inner, Mapping):
        places.insert(0, inner)
    for place in places:
        for name in _NAMES[what]:
            found = place.get(name)
            if isinstance(found, int) and not isinstance(found, bool) and found > 0:
                return found
    return None
