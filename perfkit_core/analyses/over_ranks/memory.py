"""Views of memory over ranks: what operators allocated is added; each rank has its own memory, so that the rest is
listed."""

from __future__ import annotations

from typing import Final

from perfkit_core.analyses.memory import by_operator, checks, curve, leaks, peak, per_step, places
from perfkit_core.analyses.merging import Merged, listed, merged

REDUCTIONS: Final = {
    "memory": merged(by_operator.table, Merged(by_operator.MEASURES)),
    "memory_places": listed(places.table),
    "memory_peak": listed(peak.table),
    "memory_curve": listed(curve.table),
    "memory_steps": listed(per_step.table),
    "memory_leaks": listed(leaks.table),
    "memory_checks": listed(checks.table),
}
