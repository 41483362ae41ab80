"""What is known of this machine, and how it is measured."""

from __future__ import annotations

import datetime
from collections.abc import Callable

from perfkit_core.calibration import cache
from perfkit_core.calibration.measuring import measured
from perfkit_core.calibration.model import Calibration
from perfkit_core.errors import CaptureError
from perfkit_core.machine import cpu_model, usable_cpus
from perfkit_core.plugins.contracts import Calibrator
from perfkit_core.plugins.manager import get_plugins


def known(framework: str, device: str | None = None) -> Calibration | None:
    """The newest calibration of the installed version on this processor, of a ``device`` where one is named.

    None where there is none. Measures nothing, and does not import the framework.
    """
    calibrator = get_plugins().calibrators().get(framework)
    version = calibrator.version() if calibrator else None
    fits = (one for one in cache.kept(framework) if (one.version, one.cpu) == (version, cpu_model()))
    return next((one for one in fits if device is None or one.device == device), None)


def calibrate(calibrator: Calibrator, report: Callable[[str], None] = lambda text: None) -> Calibration:
    """Measure, and keep what was measured. Raises CaptureError where the framework cannot be used."""
    version = calibrator.version()
    if version is None:
        raise CaptureError(f"{calibrator.framework} is not installed", "install it, or name another --framework")
    bench = calibrator.bench()
    found = Calibration(
        calibrator.framework,
        version,
        cpu_model(),
        len(usable_cpus()),
        bench.device.name if bench.device else None,
        bench.threads,
        datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        tuple(measured(bench, report)),
    )
    cache.save(found)
    return found
