"""What the recorded allocations and frees tell, for every framework. One question a file."""

from __future__ import annotations

from perfkit_core.analyses.memory import by_operator, checks, curve, leaks, peak, per_step, places

VIEWS = (by_operator.VIEW, places.VIEW, peak.VIEW, curve.VIEW, per_step.VIEW, leaks.VIEW, checks.VIEW)
