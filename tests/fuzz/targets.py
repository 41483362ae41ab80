"""All targets, by name."""

from __future__ import annotations

import os
import random
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tests.fuzz import gate_tables, stored_files, texts, whole_files
from tests.fuzz.event_texts import EventTexts
from tests.fuzz.target import FindingError, Target

PLANTED: Final = "PERFKIT_FUZZ_PLANTED"
"""Environment variable that adds a target whose third input fails, by an ``error`` or a ``crash``."""


class _Planted(Target):
    name = "planted"

    def __init__(self) -> None:
        self._made = -1

    @property
    def seeds(self) -> Sequence[bytes]:
        return [b"0"]

    def make(self, chance: random.Random) -> bytes:
        self._made += 1
        return str(self._made).encode()

    def run(self, data: bytes) -> bool:
        if data == b"2":
            if os.environ[PLANTED] == "crash":
                os.abort()
            raise FindingError("planted")
        return True


def all_targets(folder: Path) -> dict[str, Target]:
    """Return the targets, which write their files into ``folder``."""
    made: list[Target] = [EventTexts("torch"), EventTexts("paddle"), *whole_files.targets(folder)]
    made += [stored_files.FlippedBits(folder, stage) for stage in ("trace", "recorded")]
    made += [stored_files.Cells(folder), stored_files.RecordedCells(folder), stored_files.Timelines(folder)]
    made += [*texts.targets(), gate_tables.GateTables()]
    if PLANTED in os.environ:
        made.append(_Planted())
    return {target.name: target for target in made}


with tempfile.TemporaryDirectory() as _folder:
    NAMES: Final = tuple(all_targets(Path(_folder)))
