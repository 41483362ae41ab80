"""The figures of earlier runs: one JSON file, a section a benchmark, each with its date and machine."""

from __future__ import annotations

from pathlib import Path

import msgspec

from benchmarks.machine import Machine
from benchmarks.results import Section


class Kept(msgspec.Struct):
    """A section and where it was measured."""

    section: Section
    machine: Machine


def keep(folder: Path, name: str, section: Section, machine: Machine) -> bool:
    """Write a section beside those of other benchmarks, instead of its own earlier one. False, and nothing is done,
    where no target of it could be measured."""
    if section.checks and all(check.holds is None for check in section.checks):
        return False
    file = folder / "results.json"
    found = {**_read(file), name: Kept(section, machine)}
    temporary = file.with_suffix(".tmp")
    temporary.write_bytes(msgspec.json.format(msgspec.json.encode(found), indent=1))
    temporary.replace(file)
    return True


def all_of(folder: Path, names: list[str]) -> list[tuple[Section, Machine]]:
    """What is kept of these benchmarks, in their order."""
    found = _read(folder / "results.json")
    return [(found[name].section, found[name].machine) for name in names if name in found]


def _read(file: Path) -> dict[str, Kept]:
    return msgspec.json.decode(file.read_bytes(), type=dict[str, Kept]) if file.exists() else {}
