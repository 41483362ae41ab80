"""What many ranks are together: one job, its steps, and what is doubtful about its data."""

from __future__ import annotations

from collections.abc import Sequence

from perfkit_core.errors import SourceError, UsageError
from perfkit_core.language import Text, message
from perfkit_core.rank_findings import united
from perfkit_core.ranks.job import Facts
from perfkit_core.several import BY_ORDER, Part, check_frameworks, check_one_time, numbered
from perfkit_core.trace import Finding

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
