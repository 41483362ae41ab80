"""Selection of the files to read in a folder of trace files. The folder holds one or more files for each rank."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

from perfkit_core.base.language.messages import plural
from perfkit_core.base.system.paths import is_file, is_folder, readable
from perfkit_core.errors import SourceError
from perfkit_core.plugins.contracts import Source
from perfkit_core.readers import graph_captures, join_ranks, run_folder
from perfkit_core.trace.model.meta import Finding
from perfkit_core.trace.storage import bytestream, store

_NUMBERS: Final = re.compile(r"(\D*)(\d{0,18})")
_EXACT_FIRST: Final = (".pb", ".pb.gz", ".json", ".json.gz", ".sqlite")
"""Formats in which a recording may be saved, the most exact first."""


def expanded(path: Path, readers: Sequence[Source], partial: bool = False) -> tuple[list[Path], list[Finding]]:
    """Return the trace files in a folder, and data-quality warnings about files that are left out. A file, a run
    folder, or a folder without trace files is returned unchanged. Raises SourceError if a file is named like a rank but
    is not a profile, unless ``partial`` is set."""
    if not is_folder(path) or any(path.glob(f"*{store.SUFFIX}")):
        return [path], []
    for reader in readers:
        if reader.files is not None and (inside := list(reader.files(path))):
            return inside, _beside(path, inside)
    named = (file for file in path.iterdir() if file.name.lower().endswith(run_folder.TRACE_SUFFIXES) and is_file(file))
    visible = [file for file in named if not file.name.startswith(".")]
    # rank2 precedes rank10
    files = sorted(visible, key=lambda file: [(text, int(n or -1)) for text, n in _NUMBERS.findall(file.name)])
    files = [file for file in files if not graph_captures.is_beside(file, files)]
    # An empty or damaged file counts as a profile, so that its reader reports what is wrong. A file of which only the
    # container is known (sniffed as 1), such as any SQLite file, does not.
    heads = {file: bytestream.head(file) for file in files}
    profiles = [
        file for file, start in heads.items() if not start or any(reader.sniff(file, start) > 1 for reader in readers)
    ]
    chosen = once(profiles)
    if not chosen:
        return [path], []
    findings: list[Finding] = []
    non_profiles = [file for file in files if file not in set(profiles)]
    if not partial:
        _check_missing(non_profiles, chosen)
    if non_profiles:
        text = plural(
            "1 file in {folder} is not a profile and was left out: {names:list}",
            "{n} files in {folder} are not profiles and were left out: {names:list}",
            len(non_profiles),
            **_names(path, non_profiles),
        )
        findings.append(Finding("files-left-out", text))
    copies = [file for file in profiles if file not in set(chosen)]
    if copies:
        text = plural(
            "1 file in {folder} was left out, because its recording also exists in another format: {names:list}",
            "{n} files in {folder} were left out, because their recordings also exist in another format: {names:list}",
            len(copies),
            **_names(path, copies),
        )
        findings.append(Finding("formats-left-out", text))
    return chosen, findings


def _beside(path: Path, inside: Sequence[Path]) -> list[Finding]:
    """Return the warning about trace files in ``path`` next to folders that hold the files ``inside``."""
    if path in inside[0].parents[:2]:  # the folder of a recording, which has files about it
        return []
    files = sorted(file for file in path.iterdir() if file.name.lower().endswith(run_folder.TRACE_SUFFIXES))
    if not files:
        return []
    text = plural(
        "1 file next to the recordings in {folder} was left out: {names:list}",
        "{n} files next to the recordings in {folder} were left out: {names:list}",
        len(files),
        **_names(path, files),
    )
    return [Finding("files-left-out", text)]


def once(files: Iterable[Path]) -> list[Path]:
    """Return one file for each recording. If the same recording was saved in several formats, return the most exact."""
    best: dict[str, Path] = {}
    for file in files:
        stem, suffix = _parts(file)
        other = best.setdefault(stem, file)
        if _EXACT_FIRST.index(suffix) < _EXACT_FIRST.index(_parts(other)[1]):
            best[stem] = file
    return list(best.values())


def _parts(file: Path) -> tuple[str, str]:
    name = file.name.lower()
    suffix = max((end for end in run_folder.TRACE_SUFFIXES if name.endswith(end)), key=len)
    return file.name[: -len(suffix)], suffix


def _check_missing(files: Iterable[Path], profiles: Iterable[Path]) -> None:
    """Raise SourceError if the name of one of ``files`` states a rank or cycle that has no file in ``profiles``."""
    stems = {_parts(file)[0] for file in profiles}
    ranks, series = {join_ranks.rank_of_name(stem) for stem in stems}, set(map(_series, stems))
    for file in files:
        stem, _ = _parts(file)
        rank = join_ranks.rank_of_name(stem)
        if stem not in stems and (_series(stem) in series or (rank is not None and rank not in ranks)):
            raise SourceError(
                f"{file}: the file is named like the other profiles, but its format is unknown",
                "move it elsewhere, or leave it out with --partial",
            )


def _series(stem: str) -> str:
    return re.sub(r"\d+", "#", stem)


def _names(folder: Path, files: Sequence[Path]) -> dict[str, Any]:
    names = [readable(file.name) for file in files[:3]] + ["…"] * (len(files) > 3)
    return {"folder": readable(folder), "names": names}
