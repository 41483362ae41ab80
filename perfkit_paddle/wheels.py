"""The packages that install the module ``paddle``, and which of them do not fit together. Paddle is not imported."""

from __future__ import annotations

import functools
import logging
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Final

from perfkit_core.base.system import failures
from perfkit_core.plugins.contracts import PROBLEM, Check

DISTRIBUTIONS: Final = ("paddlepaddle", "paddlepaddle-gpu", "paddlepaddle-xpu")


def _versions(*names: str) -> dict[str, str]:
    versions = {}
    for name in names:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            continue
    return versions


def mismatches() -> Sequence[Check]:
    """Return the problems that the metadata of installed packages show."""
    wheels, checks = _versions(*DISTRIBUTIONS), []
    if len(wheels) > 1:
        shown = " and ".join(f"{name} {installed}" for name, installed in wheels.items())
        text = f"{shown} are both installed: they overwrite each other's files, so Paddle may fail or miss its GPU"
        fix = f"pip uninstall -y {' '.join(wheels)}, then install only one of them"
        checks.append(Check("framework.paddle.packages", PROBLEM, text, fix, {"packages": wheels}))
    numpy = _versions("numpy").get("numpy", "")
    old = [f"{name} {installed}" for name, installed in wheels.items() if installed.startswith("2.")]
    if old and numpy and int(numpy.partition(".")[0]) >= 2:
        text, fix = f"{old[0]} needs numpy 1, but numpy {numpy} is installed", 'pip install "numpy<2"'
        checks.append(Check("framework.paddle.numpy", PROBLEM, text, fix, {"numpy": numpy}))
    return checks


@functools.cache
def tell_mismatches() -> None:
    """Log the mismatches of installed packages, once per process."""
    for check in mismatches():
        failures.tell(f"{check.text}; {check.fix}", logging.WARNING)
