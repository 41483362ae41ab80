"""Rule 20: the host does something else for a while: no operator runs, on no thread."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from perfkit_core.advice.facts import Facts
from perfkit_core.advice.model import Assumption, Candidate, NotEvaluableError
from perfkit_core.advice.rules.captured import regions
from perfkit_core.advice.rules.idle_time import around, idle, of_length, who
from perfkit_core.advice.rules.phrases import counted, millis, part_of_step
from perfkit_core.intervals import Intervals
from perfkit_core.language import in_english, say
from perfkit_core.plugins.contracts import Rule
from perfkit_core.replay.edits.gaps import Shorten
from perfkit_core.replay.quantity import Quantity

LEFT: Final = Quantity(
    0.0, 0.0, 0.5, in_english("prior: what passes there is dropped or moved to a thread; at worst half is needed")
)
"""What is left of long gaps."""
LEFT_BETWEEN: Final = Quantity(
    0.0, 0.4, 0.9, in_english("prior: from code that is compiled whole to Python that runs nearly as before")
)
"""What is left of short ones, which recording makes longer than they are."""
Gaps = dict[int, Intervals]
"""Of each rank; what is said of them is said of ``facts.rank``, and all ranks lose them."""
_NOTHING: Final = in_english("on no thread an operator, a call of the device's runtime or the data loader is recorded")


def host_gaps(facts: Facts) -> list[Candidate]:
    """Rule 20: stretches of the steps in which no operator runs; long ones, and short ones that are many, apart."""
    facts.need_steps()
    if len(facts.steps) < 2:
        raise NotEvaluableError(say("only one step was recorded: nothing tells what recurs in every step"))
    limits = facts.thresholds
    long = round(max(limits.host_gap_one * facts.step_ns, limits.host_gap_ns))
    gaps = {rank: idle(facts, rank) for rank in facts.ranks}
    few = {rank: of_length(own, long, None) for rank, own in gaps.items()}
    many = {rank: of_length(own, limits.host_gap_least_ns, long) for rank, own in gaps.items()}
    return [
        *([_without(facts, few, total)] if (total := _worth(facts, few)) else []),
        *([_between(facts, many, total)] if (total := _worth_many(facts, many)) else []),
    ]


def _worth_many(facts: Facts, all_gaps: Gaps) -> float:
    """As :func:`_worth`, and 0 where they are few, and none by itself is worth it."""
    gaps = all_gaps[facts.rank]
    alone = facts.thresholds.host_gap_share * facts.step_ns
    if _each(facts, gaps) < facts.thresholds.host_gaps and not ((gaps[1] - gaps[0]) > alone).any():
        return 0.0
    return _worth(facts, all_gaps)


def _worth(facts: Facts, all_gaps: Gaps) -> float:
    """Median over the steps of the time in the gaps, 0 where it is too small a share of the step."""
    gaps = all_gaps[facts.rank]
    total = float(np.median(facts.within_steps(gaps))) if len(gaps[0]) else 0.0
    return total if total > facts.thresholds.host_gap_share * facts.step_ns else 0.0


def _each(facts: Facts, gaps: Intervals) -> float:
    """Gaps in a step of ``facts.rank``, on average."""
    return len(gaps[0]) / int(facts.mine.sum())


def _without(facts: Facts, all_gaps: Gaps, total: float) -> Candidate:
    """Long ones: something else is done there."""
    gaps = all_gaps[facts.rank]
    rows, rows_ns, frames = who(facts, gaps)
    longest = int((gaps[1] - gaps[0]).max())
    beside = around(facts, gaps)
    where = say("most of it in {frames}", frames=frames[0]) if frames else say("the longest {beside}", beside=beside)
    return Candidate(
        say(
            "no operator runs for {part}, in stretches of up to {longest} ms, {where}",
            part=part_of_step(facts, total),
            longest=millis(longest),
            where=where,
        ),
        evidence=_evidence(facts, gaps, total) | {"python": frames, "longest": beside},
        rows=rows,
        rows_ns=rows_ns,
        edits=(Shorten(all_gaps, LEFT),),
        ceiling_ns=_at_most(facts, gaps),
        preconditions=(say(_NOTHING),),
        vetoes=(say("shorter gaps, as Python between operators takes, are counted apart"),),
        assumptions=(Assumption("gap_factor", LEFT, LEFT.source),),
        risks=(say("what is moved to another thread still competes for Python's lock"),),
    )


def _between(facts: Facts, all_gaps: Gaps, total: float) -> Candidate:
    """Short ones: what Python does between operators."""
    gaps = all_gaps[facts.rank]
    rows, rows_ns, frames = who(facts, gaps)
    length = gaps[1] - gaps[0]
    each = _each(facts, gaps)
    where = say(", most of it in {frames}", frames=frames[0]) if frames else ""
    return Candidate(
        say(
            "no operator runs for {part}, in {counted} of typically {length:.3g} µs between operators{where}",
            part=part_of_step(facts, total),
            counted=counted(round(each), in_english("short stretch"), in_english("short stretches")),
            length=float(np.median(length)) / 1000.0,
            where=where,
        ),
        evidence=_evidence(facts, gaps, total) | {"gaps_per_step": each, "python": frames},
        rows=rows,
        rows_ns=rows_ns,
        edits=(Shorten(all_gaps, LEFT_BETWEEN),),
        ceiling_ns=_at_most(facts, gaps),
        preconditions=(say(_NOTHING),),
        vetoes=(say("gaps as short as calling an operator takes do not count"),),
        assumptions=(Assumption("gap_factor", LEFT_BETWEEN, LEFT_BETWEEN.source),),
        risks=(say("the profiler itself works between operators: without it the gaps are shorter"),),
        conflicts=("launch-bound",),  # which takes the same gaps away
        words={"gaps": "short", "compiled": "yes" if regions(facts.trace).any() else "no"},
    )


def _evidence(facts: Facts, gaps: Intervals, total: float) -> dict[str, Any]:
    return {
        "gap_ns": round(total), "gap_ratio": total / facts.step_ns, "gaps": len(gaps[0]),
        "longest_ns": int((gaps[1] - gaps[0]).max()), "step_ns": facts.step_ns,
    }  # fmt: skip


def _at_most(facts: Facts, gaps: Intervals) -> int:
    """What the typical step gets shorter by when all its gaps go."""
    recorded = facts.steps.recorded_ns[facts.mine]
    return int(facts.typical(recorded)) - int(facts.typical(recorded - facts.within_steps(gaps)))


RULES: Final = (Rule("host-gap", 20, 1, "Take other work out of the step", host_gaps),)
