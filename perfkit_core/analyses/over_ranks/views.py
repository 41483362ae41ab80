"""How does each view merge over ranks? What the numbers mean is said by the views.

A view that is not named here brings its own reduction, or its ranks are listed, one after the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from perfkit_core.analyses.merging import listed_by_rank
from perfkit_core.analyses.over_ranks import devices, fluid, layers, memory, operators, steps
from perfkit_core.plugins.contracts import Reduction, View

REDUCTIONS: Final[dict[str, Reduction]] = {
    **steps.REDUCTIONS,
    **operators.REDUCTIONS,
    **layers.REDUCTIONS,
    **devices.REDUCTIONS,
    **memory.REDUCTIONS,
    **fluid.REDUCTIONS,
}
"""Name of a view → how it merges."""


def with_reductions(views: Sequence[View]) -> tuple[View, ...]:
    """The views, each with what is known here of its merging."""
    return tuple(replace(view, reduction=view.reduction or REDUCTIONS.get(view.name)) for view in views)


def reduction(view: View) -> Reduction:
    """How a view is computed for many ranks; without a reduction of its own, its rows are listed by rank."""
    return view.reduction or listed_by_rank(view.table)
