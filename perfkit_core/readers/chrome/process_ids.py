"""Numbers of the processes and threads in a trace file. Most writers use numbers as ids. Others use texts:

- ``CPU functions`` is the only process of a file.
- ``[TP00] 83`` is process 83 of a server that merged the files of its ranks. Device work has ids such as ``[TP00] 0``.
  The text before the last number says the rank.

A number depends only on its id, not on the order of the events.
"""

from __future__ import annotations

import re
import zlib
from typing import Any, Final

from perfkit_core.readers.chrome.dialect import integer
from perfkit_core.trace.assembly.process_ranks import SEVERAL_NUMBERS

_BEFORE_NUMBER: Final = re.compile(r"(.*?)(\d{1,15})\D*", re.DOTALL)
_RANKED: Final = re.compile(r"\[[^\[\]]*\d[^\[\]]*\]|(?<![a-z])(?:rank|worker|[tdpec]p)[ _:=#-]?\d", re.IGNORECASE)
"""What says a rank in the text before the number of a process. Other texts, such as ``python3``, say none."""
_NUMBER: Final = re.compile(r"\d{1,6}")
_NOT_A_NUMBER: Final = 1 << 40
"""Is added to the checksum of a text without a rank. The ids of real processes and threads are smaller."""
_BASE: Final = 150
_MOST_NUMBERS: Final = 4


class ProcessIds:
    """The processes of one file: their names and labels by number, from ids and from metadata events."""

    def __init__(self) -> None:
        self.names: dict[int, str] = {}
        self.labels: dict[int, str] = {}  # kinds of processes, such as ``CPU`` or ``GPU 0``
        self._ranks: dict[str, int | None] = {}

    def number(self, token: Any) -> int | None:
        """Return the number of an id, or None if it is neither an integer nor a text."""
        number = integer(token)
        if number is not None or not isinstance(token, str) or not token:
            return number
        if self.rank(token) is not None and (match := _BEFORE_NUMBER.fullmatch(token)):
            return int(match[2])
        return _NOT_A_NUMBER + zlib.crc32(token.encode("utf-8", "replace"))

    def process(self, token: Any) -> int | None:
        """Return the number of a process. A text without a number becomes its name."""
        number = self.number(token)
        if number is not None and number >= _NOT_A_NUMBER and isinstance(token, str):
            self.names.setdefault(number, token)
        return number

    def rank(self, token: Any) -> int | None:
        """Return the rank that a text says, as in the column ``rank`` before
        :func:`~perfkit_core.trace.assembly.process_ranks.with_ranks`. Return None for other ids."""
        if not isinstance(token, str):
            return None
        if token not in self._ranks:
            match = _BEFORE_NUMBER.fullmatch(token)
            ranked = match is not None and _RANKED.search(match[1]) is not None
            self._ranks[token] = _rank(list(map(int, _NUMBER.findall(match[1])))) if match and ranked else None
        return self._ranks[token]

    def describe(self, name: str, token: Any, args: Any) -> None:
        """Store the name or the labels of a process, from a metadata event called ``name``."""
        number = self.number(token)
        labels = name == "process_labels"
        text = args.get("labels" if labels else "name") if isinstance(args, dict) else None
        if number is not None and isinstance(text, str) and text.strip():
            (self.labels if labels else self.names).setdefault(number, text.strip())


def _rank(numbers: list[int]) -> int | None:
    if len(numbers) < 2:
        return numbers[0] if numbers else None
    code = 0
    for number in numbers[:_MOST_NUMBERS]:
        code = code * _BASE + number % _BASE
    return SEVERAL_NUMBERS + code
