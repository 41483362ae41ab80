"""The rank of a trace file, from its head: Kineto writes it before the events."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from perfkit_core.storage.bytestream import head

HEAD_BYTES: Final = 1 << 16
"""The properties of eight devices take 4 KiB; the rank follows them."""

_DISTRIBUTED: Final = re.compile(rb'"distributedInfo"\s*:\s*\{(?:[^{}]|\{[^{}]*\})*?"rank"\s*:\s*(\d{1,9})\b')


def peek(path: Path) -> int | None:
    """The rank, None where the head does not tell it."""
    found = _DISTRIBUTED.search(head(path, HEAD_BYTES))
    return int(found[1]) if found else None
