"""Numbers on the command line: a wrong one is told in one line, with an example of a right one."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import click

from perfkit_core.errors import UsageError

if TYPE_CHECKING:
    _Number = click.ParamType[int]
else:
    _Number = click.ParamType  # click before 8.5 has no types for it

MOST = 10**9
"""More is a typing error."""


class Whole(_Number):
    """A whole number, ``least`` or more. Raises UsageError."""

    name = "integer"

    def __init__(self, least: int = 0) -> None:
        self.least = least

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """The number of the text, or the number that a default is."""
        text = str(value).strip()
        if re.fullmatch(r"[0-9]{1,10}", text) and self.least <= int(text) <= MOST:
            return int(text)
        option = param.opts[-1] if param else "the number"
        wrong = "too large" if re.fullmatch(r"[0-9]{10,}", text) else f"no whole number from {self.least} on"
        raise UsageError(f"{option} {value!r} is {wrong}", f"as in {option} {max(self.least, 5)}")
