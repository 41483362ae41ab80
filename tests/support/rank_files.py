"""Write files for more ranks than were recorded: the files of real ranks are repeated with other clocks and rank
numbers."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

_TIME = re.compile(rb'"ts": (\d+)')
_PLACE = re.compile(rb'"rank": \d+, "world_size": \d+')
SHIFT_US = 1_000_037


def write_ranks(real: Sequence[Path], count: int, folder: Path) -> list[Path]:
    """Write ``count`` ranks. The real ranks are repeated in order. With each repetition, their times are ``SHIFT_US``
    later."""
    folder.mkdir(parents=True, exist_ok=True)
    texts = [path.read_bytes() for path in real]
    return [_write(texts[rank % len(texts)], rank, rank // len(texts), count, folder) for rank in range(count)]


def _write(text: bytes, rank: int, lap: int, count: int, folder: Path) -> Path:
    moved = _TIME.sub(lambda found: b'"ts": %d' % (int(found[1]) + lap * SHIFT_US), text)
    path = folder / f"rank{rank}.json"
    path.write_bytes(_PLACE.sub(b'"rank": %d, "world_size": %d' % (rank, count), moved, count=1))
    return path
