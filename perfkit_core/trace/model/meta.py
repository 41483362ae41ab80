"""Metadata of a run, and findings: data-quality warnings about a trace, several ranks, or a job."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import pairwise
from typing import Any, Final

import msgspec

from perfkit_core.base.language.messages import Message, Text, Value, english, message, plural, render
from perfkit_core.trace.model.schema import Int64, Rank, Size

_MOST_MESSAGES: Final = 3
"""Maximum number of distinct messages per finding code. If there are more, only those of the first rank are shown."""
EDGES: Final = 0.05
"""Share of incomplete collectives that is normal, because the ranks do not begin and end recording simultaneously."""
NO_DEVICE: Final = "no-device-events"
"""Code of the finding that a rank recorded no device work."""
UNKNOWN_EVENTS: Final = "unknown-event-types"
"""Code of the finding that some events could not be interpreted."""
PROCESSES_MIXED: Final = "processes-mixed"
"""Code of the finding that device work may belong to any of several processes."""
OPERATORS_LEFT_OUT: Final = "operators-left-out"
"""Code of the finding that only some of the operators are in the recording."""
WORK_MISSING: Final = "device-work-missing"
"""Code of the finding that the program launched work on a device, and none was recorded."""
_UNINTERPRETED: Final = message("events that were not interpreted or assigned may be device work")
_MAY_LACK_WORK: Final = {
    UNKNOWN_EVENTS: _UNINTERPRETED,
    PROCESSES_MIXED: _UNINTERPRETED,
    OPERATORS_LEFT_OUT: message("operators were left out of the recording, and device work may be missing as well"),
    WORK_MISSING: message("the program launched work on the device, but it was not recorded"),
}
_ABSENCES: Final = frozenset({"no-steps", "no-phases", NO_DEVICE})
"""Codes of findings about missing data. Such a finding is dropped if another cycle of the rank has the data."""

HOST: Final = "host"
"""Key of ``TraceMeta.extra``. Its value is a dictionary with the keys below."""
CORES, THREADS, PROCESSES = "cores", "threads", "processes"
"""Keys of the entry HOST. Their values are the number of cores that the process may use, the number of threads per
operator, and the number of processes of the job on this machine."""
COUNT_KEYS: Final = {
    CORES: ("cores", "cpu_count", "cpu_cores"),
    THREADS: ("threads", "num_threads", "intra_op_threads", "omp_num_threads"),
    PROCESSES: ("processes", "local_world_size"),
}
"""Keys in the metadata of a recording whose values are the numbers of cores, threads and processes."""
SAMPLE, TOKEN = "sample", "token"
WORK_KEYS: Final[Mapping[str, tuple[str, ...]]] = {
    SAMPLE: ("samples_per_step", "num_samples", "batch_size", "global_batch_size"),
    TOKEN: ("tokens_per_step", "num_tokens"),
}
"""Metadata keys that give the work of a step. In torch, ``profiler.add_metadata_json("batch_size", "64")`` adds one."""
DTYPE: Final = "default_dtype"
"""Key of ``TraceMeta.extra``. Its value is the name of the default floating-point type, such as ``float32``."""
PROFILE_MEMORY, ALL_THREADS = "profile_memory", "profile_all_threads"
"""Keys of ``TraceMeta.options``. A profiler that records all threads records no memory events."""
LEVEL: Final = "profiler_level"
"""Key of a dictionary in ``TraceMeta.extra``. Its value says how much the profiler recorded, such as ``Level1``."""
INSTRUCTIONS: Final = "instructions"
"""Key of the entry HOST. Its value lists the processor's flags for arithmetic in reduced precision."""


class Finding(msgspec.Struct, frozen=True):
    """A finding on the quality of the data. Scripts can rely on ``code``; ``text`` is for people. A ``note`` does not
    indicate a problem, for example that no device was recorded. Other findings are warnings."""

    code: str
    text: Text
    note: bool = False

    @property
    def message(self) -> str:
        return render(self.text)

    def __repr__(self) -> str:
        return f"<Finding {self.code}: {self.message}>"


def may_lack_work(quality: Iterable[Finding]) -> Message | None:
    """Return why warnings say that device work may be missing, None if none says so. Nothing can then be said about
    idle devices."""
    return next((_MAY_LACK_WORK[item.code] for item in quality if item.code in _MAY_LACK_WORK and not item.note), None)


_OLDER_NOTES: Final = frozenset({NO_DEVICE, "no-phases", "forward-inferred", "empty-last-step"})
"""Codes of notes in files that were written before ``note`` was stored."""


class StoredFinding(msgspec.Struct, frozen=True, omit_defaults=True):
    """A finding as stored in a file. Older files have only the code and the English message."""

    code: str
    message: str
    template: str = ""
    values: dict[str, Value] = {}
    plural: str | None = None
    note: bool = False

    @classmethod
    def of(cls, finding: Finding) -> StoredFinding:
        if isinstance(finding.text, str):
            return cls(finding.code, finding.text, note=finding.note)
        text = finding.text
        return cls(finding.code, english(text), text.template, text.values, text.plural, finding.note)

    def finding(self) -> Finding:
        text: Text = self.message
        if self.template:
            template = Message(self.template, self.values, self.plural)
            with suppress(LookupError, TypeError, ValueError, ArithmeticError):  # a foreign template keeps its message
                english(template)
                text = template
        return Finding(self.code, text, self.note or self.code in _OLDER_NOTES)


class Device(msgspec.Struct, frozen=True):
    """A recorded device. ``id`` is its value in the column ``device``; ``name`` is the product name."""

    id: str
    name: str | None = None
    memory_bytes: Size | None = None
    properties: dict[str, Any] = {}


class TraceMeta(msgspec.Struct, frozen=True, kw_only=True):
    """Metadata of a run. A field is None or empty if the source does not record it.

    - ``clock``: "epoch" (ns since 1970) or "relative" (unknown origin).
    - ``window_ns``: start and end of the recording. If it is None, the range of the events is used.
    - ``recording``: a text that is equal for all cycles of one process.
    - ``job``: a text that is equal for all processes of a script that ``perfkit record`` has recorded.
    - ``thread_names``: names of threads by "rank:pid:tid".
    - ``process_names``, ``process_labels``: names of processes by "rank:pid", and what they show, such as ``GPU 0``.
    - ``cpu_utilisation``: CPU utilisation as ratios, with the keys "process" and "system".
    - ``worlds``: a pair (rank, world size) for each part of a joined trace, as recorded.
    """

    source: str
    format: str
    framework: str | None = None
    framework_version: str | None = None
    clock: str = "epoch"
    window_ns: tuple[Int64, Int64] | None = None
    ranks: tuple[Rank, ...] = ()
    world_size: Rank | None = None
    hostname: str | None = None
    recording: str | None = None
    job: str | None = None
    cycle: Int64 | None = None
    recorded_at_ns: Int64 | None = None
    incomplete: bool = False
    devices: tuple[Device, ...] = ()
    options: dict[str, Any] = {}
    thread_names: dict[str, str] = {}
    process_names: dict[str, str] = {}
    process_labels: dict[str, str] = {}
    cpu_utilisation: dict[str, float] = {}
    extra: dict[str, Any] = {}
    worlds: tuple[tuple[Rank, Rank], ...] = ()

    @property
    def threads(self) -> int | None:
        """The number of threads per operator, None if it is not recorded."""
        host = self.extra.get(HOST)
        threads = host.get(THREADS) if isinstance(host, dict) else None
        return threads if isinstance(threads, int) else None

    def recorded_worlds(self) -> tuple[tuple[int, int], ...]:
        """Return pairs (rank, world size) as recorded. A rank with several world sizes occurs in several pairs."""
        return self.worlds or tuple((rank, self.world_size) for rank in self.ranks if self.world_size)


def joined_meta(metas: Sequence[TraceMeta]) -> TraceMeta:
    """Return the metadata of the first of several parts, with the ranks, devices and thread names of all parts."""
    return msgspec.structs.replace(
        metas[0],
        ranks=tuple(sorted({rank for m in metas for rank in m.ranks})),
        world_size=next((m.world_size for m in metas if m.world_size), None),
        worlds=tuple(sorted({world for m in metas for world in m.recorded_worlds()})),
        devices=tuple({device.id: device for m in metas for device in m.devices}.values()),
        thread_names={key: name for m in metas for key, name in m.thread_names.items()},
        process_names={key: name for m in metas for key, name in m.process_names.items()},
        process_labels={key: label for m in metas for key, label in m.process_labels.items()},
        window_ns=hull([m.window_ns for m in metas if m.window_ns]),
        incomplete=any(m.incomplete for m in metas),
        cycle=metas[0].cycle if len({m.cycle for m in metas}) == 1 else None,
    )


def hull(windows: Sequence[tuple[int, int]]) -> tuple[int, int] | None:
    return (min(w[0] for w in windows), max(w[1] for w in windows)) if windows else None


def united(parts: Sequence[tuple[tuple[int, ...], Sequence[Finding]]]) -> tuple[Finding, ...]:
    """Return the findings of several parts without duplicates. Each part is a pair of ranks and findings.

    Missing data is reported only if all cycles of a rank lack it. Messages name their ranks if each part has one rank
    and the ranks differ: ``… (ranks 0–3, 5)``. If findings of the same code have more than _MOST_MESSAGES distinct
    messages, only those of the first rank are kept: ``… (rank 0; similar in 3 more of 8 ranks)``.
    """
    lacking: dict[tuple[int, ...], set[str]] = {}
    for ranks, findings in parts:
        lacking[ranks] = lacking.get(ranks, set(_ABSENCES)) & {finding.code for finding in findings}
    parts_of: dict[Finding, set[int]] = {}
    for number, (ranks, findings) in enumerate(parts):
        for finding in findings:
            if finding.code not in _ABSENCES or finding.code in lacking[ranks]:
                parts_of.setdefault(finding, set()).add(number)
    if any(len(ranks) != 1 for ranks, _ in parts) or len({ranks for ranks, _ in parts}) < 2:
        return tuple(parts_of)
    rank = [ranks[0] for ranks, _ in parts]
    result: list[Finding] = []
    for code, messages in Counter(finding.code for finding in parts_of).items():
        alike = {finding: numbers for finding, numbers in parts_of.items() if finding.code == code}
        everywhere = set().union(*alike.values())
        first = min(everywhere)
        for finding, numbers in alike.items():
            if messages <= _MOST_MESSAGES:
                about = {rank[number] for number in numbers}
                text = plural(
                    "{finding} (rank {numbers})",
                    "{finding} (ranks {numbers})",
                    len(about),
                    finding=finding.text,
                    numbers=_numbers(about),
                )
            elif first in numbers:
                text = message(
                    "{finding} (rank {number}; similar in {more} more of {ranks} ranks)",
                    finding=finding.text,
                    number=rank[first],
                    more=len(everywhere) - 1,
                    ranks=len(rank),
                )
            else:
                continue
            result.append(Finding(code, text, finding.note))
    return tuple(result)


def left_out(failed: Mapping[int, Text], count: int, files: bool = False) -> tuple[Finding, ...]:
    """Report the ranks that could not be read, with the first reason. If ``files`` is set, report files instead."""
    if not failed:
        return ()
    values = {"failed": len(failed), "count": count, "why": failed[min(failed)]}
    text = message("{failed} of {count} ranks could not be read and are left out; first error: {why}", **values)
    if files:
        text = message("{failed} of {count} files could not be read and are left out; first error: {why}", **values)
    return (Finding("ranks-left-out", text),)


def about_job(meta: TraceMeta) -> tuple[Finding, ...]:
    """Return findings about missing ranks and about a mixture of several jobs. ``meta`` must describe all parts of a
    run, because a rank that is missing in one part may be in another part."""
    findings = []
    world = meta.world_size or 0  # a damaged file may state billions of ranks
    ranks = sorted({rank for rank in meta.ranks if rank < world})
    if len(meta.ranks) > 1 and len(ranks) < world:
        text = message(
            "{missing} of {count} ranks were not read ({ranks}): transfer times of collectives are unknown",
            missing=world - len(ranks),
            count=world,
            ranks=_runs((before + 1, after - 1) for before, after in pairwise([-1, *ranks, world])),
        )
        findings.append(Finding("ranks-missing", text))
    ranks_of: dict[int, set[int]] = {}
    for rank, world in meta.recorded_worlds():
        ranks_of.setdefault(world, set()).add(rank)
    if len(ranks_of) > 1:
        worlds = [
            message("{world}: {ranks}", world=world, ranks=spelled(ranks)) for world, ranks in sorted(ranks_of.items())
        ]
        text = message(
            "recordings of several jobs are mixed: their ranks report different world sizes ({worlds:parts})",
            worlds=worlds,
        )
        findings.append(Finding("jobs-mixed", text))
    return tuple(findings)


def mixed_levels(metas: Sequence[TraceMeta]) -> tuple[Finding, ...]:
    """Report that ranks were recorded at different levels of the profiler. ``metas`` describe the parts of a run."""
    ranks_of: dict[str, set[int]] = {}
    for meta in metas:
        for entry in meta.extra.values():
            if isinstance(entry, dict) and isinstance(entry.get(LEVEL), str):
                ranks_of.setdefault(entry[LEVEL], set()).update(meta.ranks)
    if len(ranks_of) < 2:
        return ()
    levels = [
        message("{level}: {ranks}", level=level, ranks=spelled(ranks)) for level, ranks in sorted(ranks_of.items())
    ]
    text = message(
        "ranks were recorded at different levels of the profiler ({levels:parts}): what a level does not record is "
        "missing for its ranks, and their times differ by the cost of recording",
        levels=levels,
    )
    return (Finding("levels-mixed", text),)


def mixed_runs(parts: Iterable[tuple[TraceMeta, Iterable[int], Iterable[str]]]) -> tuple[Finding, ...]:
    """Report ranks that share no step or no group of collectives with another rank. Clocks do not tell: those of ranks
    may differ by hours. Groups tell only if all ranks are there, as stages of a pipeline have groups of their own.
    ``parts`` has the metadata, the step numbers and the groups of each part of a run."""
    listed, texts = list(parts), []
    if apart := _apart((meta, steps) for meta, steps, _ in listed):
        texts.append(message("{ranks} share no step number with another rank: they may be recordings of different runs",
                             ranks=spelled(apart)))  # fmt: skip
    ranks = {rank for meta, *_ in listed for rank in meta.ranks}
    complete = len(ranks) >= max((meta.world_size or 0 for meta, *_ in listed), default=0)
    if complete and (apart := _apart((meta, groups) for meta, _, groups in listed)):
        texts.append(message("{ranks} share no group of collectives with another rank: they may be recordings of "
                             "different runs", ranks=spelled(apart)))  # fmt: skip
    return tuple(Finding("runs-mixed", text) for text in texts)


def _apart(parts: Iterable[tuple[TraceMeta, Iterable[object]]]) -> set[int]:
    """Return the ranks with values of which no other rank has any. The result is empty if only one rank has values."""
    of_rank: dict[int, set[object]] = {}
    for meta, values in parts:
        for rank in meta.ranks:
            of_rank.setdefault(rank, set()).update(values)
    ranks_of = Counter(value for values in of_rank.values() for value in values)
    apart = {rank for rank, values in of_rank.items() if values and all(ranks_of[value] == 1 for value in values)}
    return apart if sum(map(bool, of_rank.values())) > 1 else set()


def waits_not_known(unknown: Collection[int], count: int, incomplete: float = 0.0) -> tuple[Finding, ...]:
    """Return findings about the waits in collectives, which may be unknown or too low.

    - ``unknown``: ranks with unknown waits. ``count`` is the number of all ranks.
    - ``incomplete``: share of the collectives in which a rank is missing that was not read or cannot be compared."""
    findings = []
    if unknown:
        text = message(
            "the waits of {unknown} of {count} ranks are unknown ({ranks}): their clocks cannot be "
            "compared with the clocks of other ranks (--view clocks shows why)",
            unknown=len(unknown),
            count=count,
            ranks=spelled(unknown),
        )
        findings.append(Finding("waits-not-known", text))
    if incomplete > EDGES:
        text = message(
            "in {share:ratio} of the collectives, a rank is missing, because it was not read or cannot be compared: "
            "this rank may be the last to arrive, so the reported waits are lower bounds",
            share=incomplete,
        )
        findings.append(Finding("waits-not-known", text))
    return tuple(findings)


def spelled(ranks: Iterable[int]) -> Message:
    """Return ``rank 3`` or ``ranks 0–3, 5``."""
    ranks = set(ranks)
    return plural("rank {numbers}", "ranks {numbers}", len(ranks), numbers=_numbers(ranks))


def _numbers(ranks: Iterable[int]) -> str:
    ordered = sorted(set(ranks))
    begins = [0, *(at + 1 for at, (rank, other) in enumerate(pairwise(ordered)) if other != rank + 1), len(ordered)]
    return _runs((ordered[begin], ordered[end - 1]) for begin, end in pairwise(begins))


def _runs(runs: Iterable[tuple[int, int]]) -> str:
    """Return pairs of first and last numbers as text, such as ``0–3, 5``. Pairs without a number are left out."""
    runs = [(first, last) for first, last in runs if first <= last]
    return ", ".join(
        str(first) if first == last else f"{first}{'–' if last - first > 1 else ', '}{last}" for first, last in runs
    )
