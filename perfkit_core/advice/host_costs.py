"""What does an operator on few numbers cost on the host, and what does it cost to launch one on a device?"""

from __future__ import annotations

from typing import Final

import numpy as np

from perfkit_core.advice.facts import Facts
from perfkit_core.advice.outer_operators import OuterOperators, elements
from perfkit_core.replay.quantity import Quantity
from perfkit_core.trace import IntArray

HOST_NS: Final = Quantity(
    1_500,
    4_000,
    12_000,
    "prior: an eager operator on few numbers takes the host 1.5 to 12 µs, nearly all of it dispatch",
)
LAUNCH_NS: Final = Quantity(8_000, 15_000, 40_000, "prior: an eager operator with one kernel takes the host 8 to 40 µs")
READ_NS: Final = Quantity(500, 1_000, 2_000, "prior: a number that lies on the host is read at once")
_ENOUGH: Final = 3
"""So many calls in the same recording tell more than calls elsewhere."""


def on_host_ns(facts: Facts, found: OuterOperators, canonical: str) -> Quantity:
    """Time of an operator on few numbers on the host: of the same recording, else as elsewhere."""
    trace = facts.trace
    same = trace.rows("op_name", canonical)[found.row] & (found.works == 0)
    count = elements(trace, found.row)
    same &= (count >= 0) & (count <= facts.thresholds.tiny_elements)
    return _recorded(trace.ints("dur_ns")[found.row[same]], HOST_NS)


def launching_ns(facts: Facts, found: OuterOperators) -> Quantity:
    """Time that the host takes for an operator that launches one kernel: of the same recording, else as elsewhere."""
    one = (found.works == 1) & (found.kernels == 1)
    return _recorded(facts.trace.ints("dur_ns")[found.row[one]], LAUNCH_NS)


def _recorded(dur_ns: IntArray, otherwise: Quantity) -> Quantity:
    if len(dur_ns) < _ENOUGH:
        return otherwise
    low, mid, high = np.quantile(dur_ns, [0.25, 0.5, 0.75]).tolist()
    return Quantity(low, mid, high, f"middle half of {len(dur_ns)} calls of the same recording")
