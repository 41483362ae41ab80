"""What does tiny work cost on this machine? Measured once, kept, and used only where a recording holds no measurement.

``bench`` is what a framework lets be timed, ``measuring`` times it, ``cache`` keeps it, ``known`` gives it to rules.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from perfkit_core.calibration.bench import Calibration

__all__ = ["known"]


def known(framework: str, device: str | None = None) -> Calibration | None:
    """See :func:`perfkit_core.calibration.calibrate.known`."""
    from perfkit_core.calibration import calibrate

    return calibrate.known(framework, device)
