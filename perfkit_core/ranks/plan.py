"""The plan of a reduction: which files belong to which rank, what to compute for each rank, and the result.

Objects of all classes except Plan are sent to other processes and written to files."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from perfkit_core.base.language.messages import Text
from perfkit_core.base.system.paths import PathLike, exists, is_folder, reaching, readable
from perfkit_core.errors import SourceError
from perfkit_core.plugins.contracts import ViewRequest
from perfkit_core.plugins.manager import get_plugins
from perfkit_core.readers import join_ranks, load, run_folder
from perfkit_core.readers.read_options import DEFAULT, ReadOptions
from perfkit_core.trace.model.meta import Finding, TraceMeta
from perfkit_core.trace.model.timed_steps import TimedSteps
from perfkit_core.trace.storage import bytestream, store


class RankFiles(msgspec.Struct, frozen=True):
    """The files of one rank, or all files if they belong to one process."""

    paths: tuple[str, ...]
    rank: int | None = None  # Assigned rank, if the files record no rank. Unset for files of one process.


class Job(msgspec.Struct, frozen=True):
    """The views to compute for each rank."""

    views: tuple[str, ...]
    request: ViewRequest  # The steps, groupings and filters of all views.
    own_steps: bool = False  # If the request names no steps, select all steps of the rank, but no events outside them.
    reading: ReadOptions = DEFAULT  # How each rank is read.

    @property
    def only_steps(self) -> bool:
        """Whether all steps of a rank are selected, but no events outside them."""
        return self.request.steps is None and (self.own_steps or self.reading.step_kind is not None)


class RankSummary(msgspec.Struct, frozen=True):
    """Facts about a rank besides its tables."""

    meta: TraceMeta
    quality: tuple[Finding, ...]
    rank_recorded: bool  # Whether the files record the number of the rank.
    events: int
    steps: tuple[int, ...]  # The recorded step numbers.
    timed: TimedSteps = TimedSteps()  # The steps that a clock timed.
    recorded: tuple[str, ...] = ()  # Columns that are empty in a table, although events have values there.
    empty: dict[str, Text] = {}  # View → reason why its table has no rows.
    groups: tuple[str, ...] = ()  # The groups of collectives.


class Partial(msgspec.Struct, frozen=True):
    """The partial results of one rank: facts about the rank, and for each view the data to merge with other ranks."""

    facts: RankSummary
    views: dict[str, Any]


class Failed(msgspec.Struct, frozen=True):
    """The reason why a rank could not be reduced. ``usage`` is set if the request is invalid for every rank."""

    message: str
    hint: str
    usage: bool


@dataclass(frozen=True, slots=True)
class Plan:
    """The ranks to reduce, in order. ``source`` is the first given path. ``findings`` are warnings about the files."""

    source: str
    ranks: tuple[RankFiles, ...]
    findings: tuple[Finding, ...] = ()

    def share(self, number: int, of: int) -> Plan:
        """Divide the ranks into ``of`` shards of equal size (± 1 rank). Return shard ``number``, counted from 1."""
        return Plan(self.source, self.ranks[number - 1 :: of], self.findings)


def plan(sources: Sequence[PathLike], partial: bool = False) -> Plan:
    """Return the ranks of the sources. The rank of a file comes from its content, else from its name, else from the
    order of the files. Cycles of one recording belong to one rank. Only the beginning and the metadata of each file are
    read. With ``partial``, files that are not recordings are left out. Raises SourceError."""
    plugins = get_plugins()
    entries, findings = load.files_of(sources, plugins, partial)
    files: list[Path] = []
    for entry in entries:
        store.flush(entry)
        with reaching(entry):
            if not exists(entry):
                raise SourceError(f"{entry}: no such file or folder", "check the path")
            more, about = run_folder.cycles(entry, partial) if is_folder(entry) else ([entry], ())
        files += more
        findings += about
    rank_of: dict[str, int | None] = {}
    recordings: dict[str, str | None] = {}
    for path in files:
        rank = cycle_of = None
        # an error is raised again when the file is read
        with reaching(path), contextlib.suppress(SourceError):
            source = load.reader(path, bytestream.head(path), plugins)
            rank = source.peek(path) if source.peek else None
        if rank is None:
            with reaching(path), contextlib.suppress(SourceError):
                cycle_of = run_folder.recording(path)
            recordings[str(path)] = cycle_of
        rank_of[str(path)] = rank
    recorded_ranks = {rank for rank in rank_of.values() if rank is not None}
    numbers, _ = join_ranks.numbered_processes(recordings, recorded_ranks)
    if not numbers and not recorded_ranks:  # a single process
        return Plan(readable(sources[0]), (RankFiles(tuple(rank_of)),), findings)
    ranks: dict[int, list[str]] = {}
    for name, rank in rank_of.items():
        ranks.setdefault(numbers[name] if rank is None else rank, []).append(name)
    return Plan(readable(sources[0]), tuple(RankFiles(tuple(ranks[rank]), rank) for rank in sorted(ranks)), findings)
