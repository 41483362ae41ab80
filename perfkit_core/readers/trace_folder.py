"""Folders of trace files that profilers wrote, one or more a rank: which files in them are meant?"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

from perfkit_core.errors import SourceError
from perfkit_core.language.messages import plural
from perfkit_core.model.meta import Finding
from perfkit_core.plugins.contracts import Source
from perfkit_core.readers.join_ranks import rank_of_name
from perfkit_core.readers.run_folder import TRACE_SUFFIXES as SUFFIXES
from perfkit_core.storage.bytestream import head
from perfkit_core.storage.store import SUFFIX
from perfkit_core.system.paths import is_file, is_folder, readable

_EXACT_FIRST: Final = (".pb", ".pb.gz", ".json", ".json.gz")
"""Formats of one recording. A folder with stored recordings is a run folder, whatever else lies in it."""


def expanded(
    paths: Iterable[Path], readers: Iterable[Source], partial: bool = False
) -> tuple[list[Path], tuple[Finding, ...]]:
    """The paths, with the trace files of a folder in place of it; and what is left out of the folders. A folder without
    any stays as it is, so that its reader says what is wrong. Raises SourceError for a file that is called like a rank
    and is no profile, which ``partial`` leaves out."""
    found: list[Path] = []
    findings: list[Finding] = []
    known = list(readers)
    for path in paths:
        files = trace_files(path) if is_folder(path) and not any(path.glob(f"*{SUFFIX}")) else []
        profiles = [file for file in files if _is_profile(file, known)]
        chosen = once(profiles)
        found += chosen or [path]
        if not chosen:
            continue
        others = [file for file in files if file not in set(profiles)]
        if not partial:
            _check_missing(others, chosen)
        if others:
            text = plural(
                "1 file of {folder} is no profile and left out: {names:list}",
                "{n} files of {folder} are no profiles and left out: {names:list}",
                len(others),
                **_named(path, others),
            )
            findings.append(Finding("files-left-out", text))
        copies = [file for file in profiles if file not in set(chosen)]
        if copies:
            text = plural(
                "1 file of {folder} is of a recording that lies there in another format and left out: {names:list}",
                "{n} files of {folder} are of recordings that lie there in another format and left out: {names:list}",
                len(copies),
                **_named(path, copies),
            )
            findings.append(Finding("formats-left-out", text))
    return found, tuple(findings)


def once(files: Iterable[Path]) -> list[Path]:
    """Of files that differ only in their format the most exact one."""
    best: dict[str, Path] = {}
    for file in files:
        stem, suffix = _parts(file)
        other = best.setdefault(stem, file)
        if _EXACT_FIRST.index(suffix) < _EXACT_FIRST.index(_parts(other)[1]):
            best[stem] = file
    return list(best.values())


def _parts(file: Path) -> tuple[str, str]:
    """The name without its format, and the format."""
    name = file.name.lower()
    suffix = max((end for end in SUFFIXES if name.endswith(end)), key=len)
    return file.name[: -len(suffix)], suffix


def _check_missing(others: Iterable[Path], profiles: Iterable[Path]) -> None:
    """Raises SourceError for a file whose name says that it is a rank, or a cycle, that no profile is of."""
    stems = {_parts(file)[0] for file in profiles}
    ranks, patterns = {rank_of_name(stem) for stem in stems}, {_pattern(stem) for stem in stems}
    for file in others:
        stem, _ = _parts(file)
        rank = rank_of_name(stem)
        if stem not in stems and (_pattern(stem) in patterns or (rank is not None and rank not in ranks)):
            raise SourceError(
                f"{file}: called like the profiles beside it, but none that perfkit knows",
                "move it elsewhere, or leave it out with --partial",
            )


def _pattern(stem: str) -> str:
    """What names of one series have in common. Without any number, a name is of no series."""
    return re.sub(r"\d+", "#", stem)


def _named(folder: Path, files: Sequence[Path]) -> dict[str, Any]:
    """Return the values of a message about files of a folder: the names of the first three."""
    names = [readable(file.name) for file in files[:3]] + ["…"] * (len(files) > 3)
    return {"folder": readable(folder), "names": names}


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
