"""Folders of trace files that profilers wrote, one or more a rank: which files in them are meant?"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from perfkit_core.paths import is_file, is_folder
from perfkit_core.plugins.contracts import Source
from perfkit_core.sources.bytestream import head
from perfkit_core.store import SUFFIX
from perfkit_core.trace import Finding

SUFFIXES: Final = (".json", ".json.gz", ".pb", ".pb.gz")
"""How the names of trace files end. A folder with stored recordings is a run folder, whatever else lies in it."""


def expanded(paths: Iterable[Path], readers: Iterable[Source]) -> tuple[list[Path], tuple[Finding, ...]]:
    """The paths, with the trace files of a folder in place of it; and what is left out of the folders. A folder without
    any stays as it is, so that its reader says what is wrong."""
    found: list[Path] = []
    findings: list[Finding] = []
    known = list(readers)
    for path in paths:
        files = trace_files(path) if is_folder(path) and not any(path.glob(f"*{SUFFIX}")) else []
        chosen = [file for file in files if _is_profile(file, known)]
        found += chosen or [path]
        others = [file.name for file in files if file not in set(chosen)]
        if chosen and others:
            text = f"{len(others)} files of {path} are no profiles and left out: {', '.join(others[:3])}"
            findings.append(Finding("files-left-out", text + (", …" if len(others) > 3 else "")))
    return found, tuple(findings)


def trace_files(folder: Path) -> list[Path]:
    """The files that are called like traces, numbers in their names in the order of counting."""
    files = (path for path in folder.iterdir() if path.name.lower().endswith(SUFFIXES) and is_file(path))
    return sorted((path for path in files if not path.name.startswith(".")), key=lambda path: counting(path.name))


def counting(name: str) -> tuple[tuple[str, int], ...]:
    """A key that sorts rank2 in front of rank10."""
    return tuple((text, int(number or -1)) for text, number in re.findall(r"(\D*)(\d{0,18})", name))


def _is_profile(file: Path, readers: list[Source]) -> bool:
    """What is empty or damaged is one: reading it says so."""
    start = head(file)
    return not start or any(reader.sniff(file, start) for reader in readers)
