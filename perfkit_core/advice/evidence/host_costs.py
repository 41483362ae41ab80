"""What does an operator on few numbers cost on the host, and what does it cost to launch one on a device?

The same recording knows best, then a calibration of this machine, where the recording is of such a device, then what
public recordings show.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from perfkit_core import calibration
from perfkit_core.advice.evidence.outer_operators import OuterOperators, elements
from perfkit_core.advice.facts import Facts
from perfkit_core.language import message
from perfkit_core.replay.quantity import Quantity
from perfkit_core.trace import IntArray, Trace

if TYPE_CHECKING:
    from perfkit_core.calibration.model import Calibration

HOST_NS: Final = Quantity(
    2_500, 7_000, 26_000, message("prior: operators on few numbers in 5 public recordings, of each the median")
)
LAUNCH_NS: Final = Quantity(
    10_000,
    30_000,
    52_000,
    message("prior: operators that launch one kernel in 17 public recordings, of each the median"),
)
COPY_NS: Final = Quantity(
    88_000,
    41_000,
    30_000,
    message(
        "prior: copies of at most 512 bytes that the host waits for, with their operators, in 11 public recordings on "
        "devices from V100 to MI300X, of each the mean of what is not ten times the median"
    ),
)
"""What a copy less saves: the most comes first."""
READ_NS: Final = Quantity(500, 1_000, 2_000, message("prior: a number that lies on the host is read without a copy"))
_ENOUGH: Final = 3
"""So many calls in the same recording tell more than calls elsewhere."""


def on_host_ns(facts: Facts, found: OuterOperators, canonical: str) -> Quantity:
    """Time of an operator on few numbers on the host."""
    trace = facts.trace
    same = trace.rows("op_name", canonical)[found.row] & (found.works == 0)
    count = elements(trace, found.row)
    same &= (count >= 0) & (count <= facts.thresholds.tiny_elements)
    measured = calibrated(trace)
    elsewhere = measured.host_ns(canonical) if measured else None
    return _recorded(trace.ints("dur_ns")[found.row[same]], elsewhere or HOST_NS)


def calibrated(trace: Trace) -> Calibration | None:
    """The calibration of this machine, if its device is of the model that the recording tells of."""
    models = {device.name for device in trace.meta.devices if device.name}
    found = (calibration.known(trace.meta.framework or "", model) for model in sorted(models))
    return next((one for one in found if one is not None), None)


def launching_ns(facts: Facts, found: OuterOperators) -> Quantity:
    """Time that the host takes for an operator that launches one kernel: of the same recording, else as elsewhere."""
    one = (found.works == 1) & (found.kernels == 1)
    return _recorded(facts.trace.ints("dur_ns")[found.row[one]], LAUNCH_NS)


def _recorded(dur_ns: IntArray, otherwise: Quantity) -> Quantity:
    if len(dur_ns) < _ENOUGH:
        return otherwise
    low, mid, high = np.quantile(dur_ns, [0.25, 0.5, 0.75]).tolist()
    return Quantity(low, mid, high, message("middle half of {count} calls of the same recording", count=len(dur_ns)))
