"""Of which ranks is a finding, where several are read as one profile?"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

from perfkit_core.language import in_english
from perfkit_core.trace_meta import Finding


def united(found: Sequence[tuple[tuple[int, ...], Sequence[Finding]]]) -> tuple[Finding, ...]:
    """The findings of several parts, each part with its ranks; equal ones once. Where every part is of one rank, and
    not all of the same, a message ends with the ranks that it is about: ``… (ranks 0–3, 5)``."""
    of: dict[Finding, set[int]] = {}
    for ranks, findings in found:
        for finding in findings:
            of.setdefault(finding, set()).update(ranks)
    if any(len(ranks) != 1 for ranks, _ in found) or len({ranks for ranks, _ in found}) < 2:
        return tuple(of)
    return tuple(Finding(one.code, _told(one.message, ranks)) for one, ranks in of.items())


def _told(message: str, ranks: Iterable[int]) -> str:
    numbers = _numbers(ranks)
    if numbers.isdecimal():
        return in_english("{message} (rank {number})", message=message, number=numbers)
    return in_english("{message} (ranks {numbers})", message=message, numbers=numbers)


def spelled(ranks: Iterable[int]) -> str:
    """``rank 3``, ``ranks 0–3, 5``."""
    numbers = _numbers(ranks)
    return f"rank{'s' * (not numbers.isdecimal())} {numbers}"


def _numbers(ranks: Iterable[int]) -> str:
    ordered = sorted(set(ranks))
    begins = [0, *(at + 1 for at, (one, other) in enumerate(pairwise(ordered)) if other != one + 1), len(ordered)]
    runs = [ordered[begin:end] for begin, end in pairwise(begins)]
    texts = [str(run[0]) if len(run) == 1 else f"{run[0]}{'–' if len(run) > 2 else ', '}{run[-1]}" for run in runs]
    return ", ".join(texts)
