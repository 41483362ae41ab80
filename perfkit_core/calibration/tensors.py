"""What every framework of tensors lets be timed under the same names: operators on few numbers."""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Final

from perfkit_core.calibration.model import Call

ELEMENTS: Final = (1, 64)
OCCUPYING: Final = 8192
"""Rows of a square matrix whose product takes a device milliseconds."""


def installed_version(*distributions: str) -> str | None:
    """Return the version of the first distribution that is installed, without importing it."""
    for name in distributions:
        try:
            return version(name)
        except PackageNotFoundError:
            continue
    return None


def small_operators(
    framework: Any, count: int, gather: Callable[[Any, Any], Call], cast: Callable[[Any], Call]
) -> dict[tuple[str, int], Call]:
    """Return operators of arithmetic and control flow on ``count`` numbers on the current device, by name and count.

    Each makes its result anew, as eager code does. ``gather`` gets values and indices, ``cast`` integers for floats.
    """
    values, numbers = framework.ones([count]), framework.arange(count)
    condition = values > 0
    return {
        ("add", count): lambda: values + 1.0,
        ("multiply", count): lambda: values * values,
        ("compare", count): lambda: values < 0.5,
        ("logical", count): lambda: framework.logical_and(condition, condition),
        ("where", count): lambda: framework.where(condition, values, values),
        ("gather", count): gather(values, numbers),
        ("slice", count): lambda: values[0],
        ("sum", count): values.sum,
        ("cast", count): cast(numbers),
        ("fill", count): lambda: framework.full_like(values, 1.0),
    }
