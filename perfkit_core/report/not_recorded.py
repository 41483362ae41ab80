"""Which columns of a view does the profile hold nothing of? Told by the whole view, before anything of it is shown."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

import pandas as pd

from perfkit_core import schema
from perfkit_core.plugins.contracts import ViewRequest
from perfkit_core.trace import Finding

_NO_DEVICE: Final = "no-device-events"
"""The finding on a recording without work of a device."""


def not_recorded(
    holds: Callable[[str], bool], quality: Iterable[Finding], whole: pd.DataFrame, request: ViewRequest
) -> tuple[str, ...]:
    """Names of columns: the view has nothing there, and neither have the events; ``holds`` tells of one of their
    columns whether they have. Where no work of a device was recorded, zeros of devices are nothing, too.

    A request for some of the events cannot tell what none of them holds: what it leaves out may hold it.
    """
    names = [str(name) for name in whole.columns]
    found = {name for name in names if of_all(request) and whole[name].isna().all()}
    never = {name for name in found if not (name in schema.COLUMN_NAMES and holds(name))}
    if any(finding.code == _NO_DEVICE for finding in quality):
        never |= {name for name in names if _of_devices(name) and _is_nothing(whole[name])}
    return tuple(name for name in names if name in never)


def _of_devices(name: str) -> bool:
    return "device" in name.split("_")


def _is_nothing(column: pd.Series) -> bool:
    return bool(column.isna().all() or (pd.api.types.is_numeric_dtype(column) and not column.fillna(0).any()))


def of_all(request: ViewRequest) -> bool:
    """Whether all events are asked for, whatever they are grouped by."""
    return request.steps is None and not any((request.pattern, request.kind, request.device))
