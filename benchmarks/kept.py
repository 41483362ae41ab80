"""Store the results of benchmarks in one JSON file: a section per benchmark, with the date and the machine."""

from __future__ import annotations

from pathlib import Path

import msgspec

from benchmarks.machine import Machine
from benchmarks.results import Section


class Kept(msgspec.Struct):
    """A section with the date and machine of its measurement."""

    section: Section
    machine: Machine


def keep(folder: Path, name: str, section: Section, machine: Machine) -> bool:
    """Save a section, which replaces the earlier section of the same benchmark. If it has targets but none could be
    measured, save nothing and return False."""
    if section.checks and all(check.holds is None for check in section.checks):
        return False
    file = folder / "results.json"
    found = {**_read(file), name: Kept(section, machine)}
    temporary = file.with_suffix(".tmp")
    temporary.write_bytes(msgspec.json.format(msgspec.json.encode(found), indent=1))
    temporary.replace(file)
    return True


def all_of(folder: Path, names: list[str]) -> list[tuple[Section, Machine]]:
    """Return the saved sections of these benchmarks, in the order of the names."""
    found = _read(folder / "results.json")
    return [(found[name].section, found[name].machine) for name in names if name in found]


def _read(file: Path) -> dict[str, Kept]:
    return msgspec.json.decode(file.read_bytes(), type=dict[str, Kept]) if file.exists() else {}
