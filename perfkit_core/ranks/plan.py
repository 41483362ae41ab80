"""Which files make which rank? Only heads and metadata are read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from perfkit_core.errors import SourceError
from perfkit_core.model.meta import Finding
from perfkit_core.plugins.manager import Plugins, get_plugins
from perfkit_core.ranks.job import RankFiles
from perfkit_core.readers.join_ranks import numbered_processes
from perfkit_core.readers.load import files_of, reader
from perfkit_core.readers.run_folder import cycles, recording
from perfkit_core.storage import store
from perfkit_core.storage.bytestream import head
from perfkit_core.system.paths import PathLike, as_path, exists, is_folder, reaching, readable


@dataclass(frozen=True, slots=True)
class Plan:
    """``source``: what was named first; ``ranks`` in order; ``findings`` about the files. A plan of one rank is a
    profile that is read as a whole."""

    source: str
    ranks: tuple[RankFiles, ...]
    findings: tuple[Finding, ...] = ()

    def share(self, number: int, of: int) -> Plan:
        """The part of the ranks that is number ``number`` (1 is the first) of ``of`` parts, as even as can be."""
        return Plan(self.source, self.ranks[number - 1 :: of], self.findings)


def plan(sources: Sequence[PathLike], partial: bool = False) -> Plan:
    """The ranks of the sources: as the files tell, as their names do, or as they are ordered. Cycles of one recording
    are one rank. ``partial`` leaves out what is no profile. Raises SourceError."""
    plugins = get_plugins()
    named, findings = files_of(sources, plugins, partial)
    files: list[Path] = []
    for path in named:
        more, about = _files(path)
        files += more
        findings += about
    told = {str(path): _rank(path, plugins) for path in files}
    known = {rank for rank in told.values() if rank is not None}
    unknown = {source: _recording(source) for source, rank in told.items() if rank is None}
    numbers, _ = numbered_processes(unknown, known)
    if not numbers and not known:  # a single process
        return Plan(readable(sources[0]), (RankFiles(tuple(told)),), findings)
    ranks: dict[int, list[str]] = {}
    for source, rank in told.items():
        ranks.setdefault(numbers[source] if rank is None else rank, []).append(source)
    return Plan(readable(sources[0]), tuple(RankFiles(tuple(ranks[rank]), rank) for rank in sorted(ranks)), findings)


def _files(path: Path) -> tuple[list[Path], tuple[Finding, ...]]:
    """A run folder as its cycles."""
    store.flush(path)
    with reaching(path):
        if not exists(path):
            raise SourceError(f"{path}: no such file or folder", "check the path")
        return cycles(path) if is_folder(path) else ([path], ())


def _recording(source: str) -> str | None:
    """The recording that a stored file is a cycle of; None for other files."""
    path = as_path(source)
    with reaching(path):
        try:
            return recording(path)
        except SourceError:
            return None


def _rank(path: Path, plugins: Plugins) -> int | None:
    """The rank that a file tells; None also for what cannot be read, which reading will say."""
    with reaching(path):
        try:
            found = reader(path, head(path), plugins)
            return found.peek(path) if found.peek else None
        except SourceError:
            return None
