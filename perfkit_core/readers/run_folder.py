"""Run folders that the handlers write, and single files of them.

A folder may hold the recordings of several processes. Processes that recorded at the same time are ranks of one job,
numbered in order where they know no rank. Ranks of a job may also have followed one another, if they tell that they are
other ranks of a world of the same size. Of all else that followed one another the last one is the run, and the older
ones are reported.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from perfkit_core.errors import SourceError
from perfkit_core.language.messages import message
from perfkit_core.model.meta import Finding, TraceMeta
from perfkit_core.model.trace import Trace
from perfkit_core.readers.join_ranks import numbered_processes, one_job
from perfkit_core.storage.bytestream import head
from perfkit_core.storage.store import INCOMPLETE_MARK, SUFFIX, read_stored
from perfkit_core.storage.stored_file import read_metadata
from perfkit_core.system.paths import arrow_input, is_folder

_PARQUET_MAGIC: Final = b"PAR1"
TRACE_SUFFIXES: Final = (".json", ".json.gz", ".pb", ".pb.gz")
"""How the names of the profilers' own files end."""


def sniff(path: Path, start: bytes) -> int:
    """2 for a folder with recorded cycles and for a Parquet file, 1 for any other folder."""
    if start or not is_folder(path):
        return 2 if start.startswith(_PARQUET_MAGIC) else 0
    return 2 if any(path.glob(f"*{SUFFIX}")) else 1


def read(path: Path, partial: bool = False) -> Trace:
    """The run as one Trace: every cycle of every rank. Raises SourceError, also where these cannot be of one job."""
    if not is_folder(path):
        return _with_source(read_stored(path), path)
    files, findings = cycles(path)
    whole = one_job([_with_source(read_stored(file), file) for file in files])
    return _with_source(whole, path).with_findings(*findings)


def peek(path: Path) -> int | None:
    """The rank of a stored file, None where it does not tell one."""
    ranks = _meta(path).ranks
    return ranks[0] if len(ranks) == 1 else None


def recording(path: Path) -> str | None:
    """What the cycles of a process have in common, None for a file that is not stored or does not tell."""
    return _meta(path).recording if head(path).startswith(_PARQUET_MAGIC) else None


def cycles(path: Path) -> tuple[list[Path], tuple[Finding, ...]]:
    """The files that make up the run of a folder, ordered by rank and cycle, and what is doubtful about the folder.

    Reads only their metadata. Raises SourceError.
    """
    files = sorted(path.glob(f"*{SUFFIX}"))
    if not files:
        raise _nothing_in(path)
    metas = {file: _meta(file) for file in files}
    chosen, findings = _latest(metas)
    return chosen, (*findings, *_incomplete(path), *_gaps([metas[file] for file in chosen], len(_lost(path))))


def _nothing_in(path: Path) -> SourceError:
    inside = sorted({found.parent.name for found in path.glob(f"*/*{SUFFIX}")})
    if inside:
        shown = ", ".join(inside[:3]) + (", …" if inside[3:] else "")
        return SourceError(
            f"{path}: a folder without recordings of its own; there are some in {shown}",
            f"name one of these folders; perfkit runs {path} lists what is inside",
        )
    if lost := _lost(path):
        return SourceError(f"{path}: no cycle could be kept, the first: {lost[0]}", "mend that, and record again")
    return SourceError(
        f"{path}: a folder without recordings (*{SUFFIX}) and trace files ({', '.join(TRACE_SUFFIXES)})",
        f"give the folder that was passed to trace_handler, or of trace files; perfkit runs {path} looks below it",
    )


def _meta(file: Path) -> TraceMeta:
    try:
        with arrow_input(file) as opened:
            return read_metadata(pq.read_metadata(opened), file).meta
    except (pa.ArrowException, OSError) as error:
        raise SourceError(f"{file}: not a readable Parquet file ({error})", "remove it and record again") from None


def _with_source(trace: Trace, path: Path) -> Trace:
    return trace.with_meta(source=str(path))


def numbered(metas: Mapping[str, TraceMeta]) -> tuple[Mapping[str, int], tuple[Finding, ...]]:
    """The ranks of the files that know none, and how they were numbered."""
    known = {rank for meta in metas.values() for rank in meta.ranks}
    return numbered_processes({file: meta.recording for file, meta in metas.items() if not meta.ranks}, known)


def _latest(metas: dict[Path, TraceMeta]) -> tuple[list[Path], list[Finding]]:
    """Files of the latest run, ordered by rank and cycle."""
    recordings: dict[str, list[Path]] = {}
    for file, meta in metas.items():
        recordings.setdefault(meta.recording or file.name, []).append(file)
    chosen: list[list[Path]] = []
    older = 0
    for files in sorted(recordings.values(), key=lambda files: _span(metas, files), reverse=True):
        if all(_overlap(metas, files, kept) or _other_rank(metas, files, kept) for kept in chosen):
            chosen.append(files)
        else:
            older += 1
    ordered = sorted((file for files in chosen for file in files), key=lambda f: (metas[f].ranks, f.name))
    if not older:
        return ordered, []
    text = message("older recordings in the same folder are left out ({count}): use one folder a run", count=older)
    return ordered, [Finding("older-recordings", text)]


def _other_rank(metas: dict[Path, TraceMeta], a: list[Path], b: list[Path]) -> bool:
    """Whether the two tell that they are different ranks of a world of the same size."""
    one, other = metas[a[0]], metas[b[0]]
    return bool(one.ranks and other.ranks) and one.ranks != other.ranks and one.world_size == other.world_size


def _span(metas: dict[Path, TraceMeta], files: Iterable[Path]) -> tuple[int, int]:
    """When a recording began and ended, as far as its files tell; (end, start) so that it sorts by its end."""
    windows = [metas[file].window_ns or (metas[file].recorded_at_ns or 0,) * 2 for file in files]
    return max(window[1] for window in windows), min(window[0] for window in windows)


def _overlap(metas: dict[Path, TraceMeta], a: list[Path], b: list[Path]) -> bool:
    (end_a, start_a), (end_b, start_b) = _span(metas, a), _span(metas, b)
    return start_a < end_b and start_b < end_a


def _incomplete(path: Path) -> list[Finding]:
    lost = _lost(path)
    if not lost:
        return []
    text = message("{count} cycles could not be kept, the first: {why}", count=len(lost), why=lost[0])
    return [Finding("incomplete-run", text)]


def _gaps(metas: Iterable[TraceMeta], told: int) -> list[Finding]:
    """Processes number their cycles from 0: which numbers no file has. ``told``: how many cycles the mark tells."""
    numbers: dict[str, set[int]] = {}
    for meta in metas:
        if meta.recording and meta.cycle is not None:
            numbers.setdefault(meta.recording, set()).add(meta.cycle)
    count = sum(max(found) + 1 - len(found) for found in numbers.values()) - told
    if count <= 0:
        return []
    text = message("{count} cycles that were recorded before others are not in the folder", count=count)
    return [Finding("missing-cycles", text)]


def _lost(path: Path) -> list[str]:
    """What the mark of a folder says of each cycle that could not be kept. An empty one is of a full disk: there was no
    room for a reason either."""
    mark = path / INCOMPLETE_MARK
    if not mark.exists():
        return []
    return mark.read_text(encoding="utf-8", errors="replace").splitlines() or ["no room for the reason either"]
