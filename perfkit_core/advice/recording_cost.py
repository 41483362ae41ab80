"""What it costs to record an operator: the time that the profiler adds to a step."""

from __future__ import annotations

from typing import Final

from perfkit_core.base.language.messages import message
from perfkit_core.base.system.machine import is_this_host
from perfkit_core.measure.calibration import calibrate
from perfkit_core.measure.calibration.bench import SOURCE, recording_name
from perfkit_core.plugins.manager import get_plugins
from perfkit_core.replay.transforms import Quantity
from perfkit_core.trace.model.meta import TraceMeta

_WIDER: Final = 3.0
"""Factor by which the cost of recording an operator may differ from its calibration, which runs few operators."""


def recording_cost(meta: TraceMeta) -> Quantity:
    """Return the time in ns that the profiler of a recording took to record an operator.

    For a recording of this machine, the time comes from its calibration, else from the framework's adapter. It is 0 for
    a framework without adapter."""
    options = ["", *(name for name, on in meta.options.items() if on)]
    here = is_this_host(meta.hostname)
    calibration = calibrate.newest(meta.framework or "") if here else None
    measured = [] if calibration is None else [calibration.quantity(recording_name(name)) for name in options]
    parts = [part.ends for part in measured if part is not None]
    if parts:
        low, mid, high = (sum(end) for end in zip(*parts, strict=True))
        return Quantity(low / _WIDER, mid, high * _WIDER, SOURCE)
    calibrator = get_plugins().framework(meta.framework).calibrator()
    prior = {} if calibrator is None else calibrator.recording_ns
    parts = [(0.0, 0.0, 0.0), *(prior[name] for name in options if name in prior)]
    low, mid, high = (sum(end) for end in zip(*parts, strict=True))
    return Quantity(low, mid, high, message("typical of this profiler"))
