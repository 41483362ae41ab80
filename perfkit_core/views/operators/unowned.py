"""Device work that no operator owns: what no recorded call launched, and what was launched outside every operator."""

from __future__ import annotations

from typing import Final

import numpy as np

from perfkit_core.algorithms.arrays import NO_ROW, IntArray
from perfkit_core.model.schema import DEVICE_WORK
from perfkit_core.model.trace import Trace
from perfkit_core.plugins.contracts import ViewRequest
from perfkit_core.views.operators.dataflow import outermost
from perfkit_core.views.select import selected

NO_LAUNCH: Final = "(no launch recorded)"
OUTSIDE: Final = "(launched outside operators)"


def unowned(trace: Trace, request: ViewRequest) -> dict[str, IntArray]:
    """Rows of the chosen device work by the name of the reason. None where the request names events: what operators of
    some name own has no rest."""
    if request.native or request.pattern is not None or request.kind is not None:
        return {}
    work = np.flatnonzero(trace.rows("kind", *DEVICE_WORK) & selected(trace, request))
    launched_by = trace.ints("launched_by")[work]
    launched = launched_by != NO_ROW
    reasons = {NO_LAUNCH: ~launched, OUTSIDE: launched & (outermost(trace)[launched_by] == NO_ROW)}
    found = {name: work[mask] for name, mask in reasons.items()}
    return {name: rows for name, rows in found.items() if len(rows)}
