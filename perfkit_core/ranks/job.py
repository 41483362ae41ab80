"""What is asked of every rank, and what a rank answers. Plain data: it travels to other processes and into files.

What many ranks are together: one job, its steps, and what is doubtful about its data.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import msgspec

from perfkit_core.errors import SourceError, UsageError
from perfkit_core.language.messages import Text, message
from perfkit_core.model.findings import united
from perfkit_core.model.meta import Finding, TraceMeta
from perfkit_core.plugins.contracts import View, ViewRequest, split_grouping
from perfkit_core.readers.join_ranks import BY_ORDER, Part, check_frameworks, check_one_time, numbered


class RankFiles(msgspec.Struct, frozen=True):
    """The files of one rank. ``rank`` is used where they do not tell it themselves (None: they hold several)."""

    paths: tuple[str, ...]
    rank: int | None = None


class Job(msgspec.Struct, frozen=True):
    """The views to compute and the request to compute them for. ``own_steps``: count only what is in steps, those of
    the rank where the request names none. ``partial``: keep what can be read of damaged files."""

    views: tuple[str, ...]
    request: ViewRequest
    own_steps: bool = False
    partial: bool = False


class Facts(msgspec.Struct, frozen=True):
    """What is known of a rank besides its tables. ``told``: it told its rank itself. ``steps``: numbers of its steps.
    ``recorded``: columns of events that hold something although a table has nothing there. ``empty``: view → why its
    table has no rows."""

    meta: TraceMeta
    quality: tuple[Finding, ...]
    told: bool
    events: int
    steps: tuple[int, ...]
    recorded: tuple[str, ...] = ()
    empty: dict[str, Text] = {}


class Partial(msgspec.Struct, frozen=True):
    """One rank, reduced: its facts and the partial of each view."""

    facts: Facts
    views: dict[str, Any]


class Failed(msgspec.Struct, frozen=True):
    """Why a rank could not be reduced. ``usage``: the request makes no sense, for this rank as for any other."""

    message: str
    hint: str
    usage: bool


def understood(view: View, request: ViewRequest) -> ViewRequest:
    """What of a request a view knows: its groupings (``operator``, or ``families.operator`` for the view families
    alone), and native numbers where it has some."""
    mine = (item.removeprefix(f"{view.name}.") for item in request.by)
    by = tuple(item for item in mine if split_grouping(item)[0] in view.groupings)
    return replace(request, by=by, native=request.native and view.native)


_SHOWN_STEPS = 20


def check(facts: Sequence[Facts]) -> tuple[Finding, ...]:
    """How ranks that do not tell theirs were numbered. Raises SourceError for ranks that cannot be of one job: of
    several frameworks, one rank twice, or made one after the other without telling their rank."""
    if not facts:
        raise SourceError("no rank could be read", "without --partial the first one that fails is named")
    check_frameworks(Part.of(fact.meta) for fact in facts)
    seen: dict[tuple[int, ...], str] = {}
    for fact in facts:
        source = fact.meta.source
        if seen.setdefault(fact.meta.ranks, source) != source:
            raise SourceError(
                f"{seen[fact.meta.ranks]} and {source} both hold rank {_spelled(fact.meta.ranks)}",
                "name the files of one run; perfkit compare sets two runs side by side",
            )
    unknown = [Part.of(fact.meta) for fact in facts if fact.meta.ranks and not fact.told]
    known = {rank for fact in facts if fact.told for rank in fact.meta.ranks}
    _, findings = numbered([part.source for part in unknown], known)
    if any(finding.code == BY_ORDER for finding in findings):
        check_one_time(unknown)
    return findings


def steps(facts: Sequence[Facts], wanted: tuple[int, ...] | None) -> tuple[int, ...]:
    """The numbers of the steps of any rank. Raises UsageError for a wanted step that none has."""
    recorded = tuple(sorted({step for fact in facts for step in fact.steps}))
    missing = sorted(set(wanted or ()) - set(recorded))
    if missing:
        known = ", ".join(map(str, recorded[:_SHOWN_STEPS])) or "none"
        raise UsageError(f"step {missing[0]} was not recorded", f"recorded steps: {known}")
    return recorded


def quality(facts: Sequence[Facts]) -> tuple[Finding, ...]:
    """The findings of all ranks, with the ranks that they are about."""
    return united([(fact.meta.ranks, fact.quality) for fact in facts])


def why_empty(view: str, facts: Sequence[Facts]) -> Text:
    """Why the table of a view has no rows: as the first rank says."""
    nothing = message("nothing of this kind was recorded")
    return next((fact.empty[view] for fact in facts if view in fact.empty), nothing)


def _spelled(ranks: tuple[int, ...]) -> str:
    return ", ".join(map(str, ranks)) or "unknown"
