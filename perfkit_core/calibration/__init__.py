"""Measured costs of tiny work on this machine, which predictions use if the recording has no measurement. ``bench``
holds the calls that a framework offers for timing, ``calibrate`` measures and stores them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from perfkit_core.calibration.bench import Calibration

__all__ = ["known"]


def known(framework: str, device: str | None = None) -> Calibration | None:
    from perfkit_core.calibration import calibrate

    return calibrate.known(framework, device)
