"""The pairs of the proving ground. A pair is a program in ``programs``, as it was written and with one fix."""

from __future__ import annotations

import hashlib
import shlex
import sys
import tomllib
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

HERE = Path(__file__).resolve().parent
PROGRAMS = HERE / "programs"
Part = Literal["tune", "report"]
Side = Literal["base", "change"]


@dataclass(frozen=True, slots=True)
class Pair:
    """A program and its fix.

    - ``program``: path below ``programs`` without the suffix; the folder is the framework
    - ``model``: kind of model. ``waste``, ``fix``: what the program wastes, and what changes with its fix
    - ``rule``: rule of ``perfkit advise`` that should suggest the fix, or must not if the fix saves nothing
    - ``about``: word in the text of the advice that suggests the fix, if the rule may give advice on other code, too
    - ``part``: "tune" if its measurement may shape the rules and their intervals, "report" if it only judges them
    """

    program: str
    model: str
    waste: str
    fix: str
    rule: str
    part: Part
    about: str = ""

    @property
    def framework(self) -> str:
        return self.program.partition("/")[0]

    @property
    def file(self) -> Path:
        return PROGRAMS / f"{self.program}.py"

    @property
    def hash(self) -> str:
        """Hash of the program. Measurements of another version do not count."""
        return hashlib.sha256(self.file.read_bytes()).hexdigest()[:12]

    def command(self, side: Side, record: Path | None = None) -> str:
        words = [sys.executable, str(self.file), *(["--fixed"] if side == "change" else [])]
        return shlex.join([*words, *(["--record", str(record)] if record else [])])


def pairs(part: Part | None = None, programs: Collection[str] = ()) -> list[Pair]:
    """Return the pairs of a part (default: both) whose program is in ``programs`` (default: all)."""
    entries = tomllib.loads((HERE / "pairs.toml").read_text(encoding="utf-8"))["pair"]
    every = [Pair(**entry) for entry in entries]
    unknown = set(programs) - {pair.program for pair in every}
    if unknown:
        raise SystemExit(f"no such program: {', '.join(sorted(unknown))}")
    return [pair for pair in every if part in (None, pair.part) and (not programs or pair.program in programs)]
