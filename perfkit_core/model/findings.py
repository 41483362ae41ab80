"""Of which ranks is a finding, where several are read as one profile?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Final

from perfkit_core.language.messages import Message, Text, message, plural
from perfkit_core.model.meta import Finding, TraceMeta

_MOST_WAYS: Final = 3
"""In which the ranks may tell the same kind of thing one by one."""
EDGES: Final = 0.05
"""Share of the collectives that a rank of the group may lack, as recordings do not begin and end at one moment."""
_ABSENCES: Final = frozenset({"no-steps", "no-phases", "no-device-events"})
"""Codes of what a cycle lacks, which is no fault where another one of its rank has it."""

_Parts = Sequence[tuple[tuple[int, ...], Sequence[Finding]]]


def united(parts: _Parts) -> tuple[Finding, ...]:
    """The findings of several parts, each part with its ranks; equal ones once. What cycles of one rank lack is told
    where all of them lack it. Where every part is of one rank, and
    not all of the same, a message ends with the ranks that it is about: ``… (ranks 0–3, 5)``. Of a kind that ranks tell
    in many ways, the first one's stands for all: ``… (rank 0; alike in 3 more of 8 ranks)``."""
    found = _without_what_others_have(parts)
    of: dict[Finding, set[int]] = {}
    for number, (_, findings) in enumerate(found):
        for finding in findings:
            of.setdefault(finding, set()).add(number)
    if any(len(ranks) != 1 for ranks, _ in found) or len({ranks for ranks, _ in found}) < 2:
        return tuple(of)
    many = {code for code, ways in Counter(one.code for one in of).items() if ways > _MOST_WAYS}
    rank = [ranks[0] for ranks, _ in found]
    told = (
        _first(code, of, rank) if code in many else [Finding(one.code, _told(one.text, (rank[n] for n in of[one])))
                                                     for one in of if one.code == code]
        for code in dict.fromkeys(one.code for one in of)
    )  # fmt: skip
    return tuple(one for some in told for one in some)


def _without_what_others_have(parts: _Parts) -> _Parts:
    lacking: dict[tuple[int, ...], set[str]] = {}
    for ranks, findings in parts:
        lacking[ranks] = lacking.get(ranks, set(_ABSENCES)) & {one.code for one in findings}
    return [
        (ranks, [one for one in findings if one.code not in _ABSENCES or one.code in lacking[ranks]])
        for ranks, findings in parts
    ]


def _first(code: str, of: Mapping[Finding, set[int]], rank: Sequence[int]) -> list[Finding]:
    """What the first part says, and how many say the like."""
    parts = set().union(*(numbers for one, numbers in of.items() if one.code == code))
    first, more = min(parts), len(parts) - 1
    return [
        Finding(
            code,
            message(
                "{finding} (rank {number}; alike in {more} more of {ranks} ranks)",
                finding=one.text,
                number=rank[first],
                more=more,
                ranks=len(rank),
            ),
        )
        for one, numbers in of.items()
        if one.code == code and first in numbers
    ]


def _told(finding: Text, ranks: Iterable[int]) -> Message:
    one = set(ranks)
    return plural(
        "{finding} (rank {numbers})", "{finding} (ranks {numbers})", len(one), finding=finding, numbers=_numbers(one)
    )


def left_out(failed: Mapping[int, Text], count: int) -> tuple[Finding, ...]:
    """That some of so many ranks could not be read: their numbers in the order of the ranks, and why."""
    if not failed:
        return ()
    text = message(
        "{failed} of {count} ranks could not be read and are left out, the first: {why}",
        failed=len(failed),
        count=count,
        why=failed[min(failed)],
    )
    return (Finding("ranks-left-out", text),)


def files_left_out(failed: Mapping[int, Text], count: int) -> tuple[Finding, ...]:
    """The same of files, of which a rank may have several."""
    if not failed:
        return ()
    text = message(
        "{failed} of {count} files could not be read and are left out, the first: {why}",
        failed=len(failed),
        count=count,
        why=failed[min(failed)],
    )
    return (Finding("ranks-left-out", text),)


def about_job(meta: TraceMeta) -> tuple[Finding, ...]:
    """Whether the ranks that were read are all of a job, and of one job: of a whole profile, as ranks that one of its
    parts lacks may be in another one."""
    return (*_not_read(meta), *_mixed(meta))


def _not_read(meta: TraceMeta) -> tuple[Finding, ...]:
    """That several ranks of a job were read, but not all: of one alone the others are not expected."""
    absent = set(range(meta.world_size or 0)) - set(meta.ranks)
    if len(meta.ranks) < 2 or not absent:
        return ()
    text = message(
        "{missing} of {count} ranks were not read ({ranks}): how long a transfer takes once all have come is not known",
        missing=len(absent),
        count=meta.world_size,
        ranks=_numbers(absent),
    )
    return (Finding("ranks-missing", text),)


def _mixed(meta: TraceMeta) -> tuple[Finding, ...]:
    """That the parts of a profile tell different numbers of ranks of their job."""
    of: dict[int, set[int]] = {}
    for rank, world in meta.told_worlds():
        of.setdefault(world, set()).add(rank)
    if len(of) < 2:
        return ()
    text = message(
        "recordings of several jobs are mixed: their ranks tell different numbers of ranks ({worlds:parts})",
        worlds=[message("{world}: {ranks}", world=world, ranks=spelled(ranks)) for world, ranks in sorted(of.items())],
    )
    return (Finding("jobs-mixed", text),)


def waits_not_known(unknown: Collection[int], count: int, incomplete: float = 0.0) -> tuple[Finding, ...]:
    """That of some of so many ranks nothing tells how long they wait for others, although of the rest it is known; and
    at what share of the collectives it is known at least, as not all ranks of the group can be compared."""
    return (*_not_at_all(unknown, count), *_at_least(incomplete))


def _not_at_all(unknown: Collection[int], count: int) -> Iterator[Finding]:
    if unknown:
        text = message(
            "how long {unknown} of {count} ranks wait for others is not known ({ranks}): their clocks cannot be "
            "compared with those of others (--view clocks tells why)",
            unknown=len(unknown),
            count=count,
            ranks=spelled(unknown),
        )
        yield Finding("waits-not-known", text)


def _at_least(incomplete: float) -> Iterator[Finding]:
    if incomplete > EDGES:
        text = message(
            "at {share:ratio} of the collectives a rank of the group cannot be compared with the others, or was not "
            "read: these wait at least as long as told, and that rank may be the last one",
            share=incomplete,
        )
        yield Finding("waits-not-known", text)


def spelled(ranks: Iterable[int]) -> Message:
    """Return ``rank 3``, ``ranks 0–3, 5``."""
    ranks = set(ranks)
    return plural("rank {numbers}", "ranks {numbers}", len(ranks), numbers=_numbers(ranks))


def _numbers(ranks: Iterable[int]) -> str:
    ordered = sorted(set(ranks))
    begins = [0, *(at + 1 for at, (one, other) in enumerate(pairwise(ordered)) if other != one + 1), len(ordered)]
    runs = [ordered[begin:end] for begin, end in pairwise(begins)]
    texts = [str(run[0]) if len(run) == 1 else f"{run[0]}{'–' if len(run) > 2 else ', '}{run[-1]}" for run in runs]
    return ", ".join(texts)
