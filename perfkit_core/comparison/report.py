"""The comparison as a Report."""

from __future__ import annotations

from dataclasses import replace

from perfkit_core.comparison.sides import Comparison, compare
from perfkit_core.report.facts import source
from perfkit_core.report.headline import duration
from perfkit_core.report.model import Report, Section, Source
from perfkit_core.trace import Trace

SHOWN_OPERATORS = 30


def comparison_report(base: Trace, other: Trace) -> Report:
    """Sections step_time, phases, overview and operators; the matched shares in the headline and in ``data``."""
    found = compare(base, other)
    per = "for each step; calls are of all steps" if found.per_step else "for the run, as not both have steps"
    sections = (
        Section("step_time", "Step time", found.step_time, empty="steps are needed in both runs"),
        Section("phases", "Phases of the step", found.phases, f"Host time {per}.", empty="no phases were recorded"),
        Section("overview", "Overview by kind of event", found.overview, f"Covered time {per}."),
        Section("operators", "Operators by canonical name", found.operators, _note(per), limit=SHOWN_OPERATORS),
    )
    return Report(
        f"{base.meta.framework} and {other.meta.framework} compared",
        (_side(base, "base"), _side(other, "other")),
        sections,
        headline=(*_step_sentence(found), *_matched_sentences(found)),
        data={"matched_share": found.matched_share},
    )


def _side(trace: Trace, name: str) -> Source:
    found = source(trace)
    return replace(found, label=f"{name}: {found.label}")


def _note(per: str) -> str:
    return f"Time in the outermost operators of each name, {per}."


def _step_sentence(found: Comparison) -> tuple[str, ...]:
    if found.step_time.empty:
        return ()
    (median,) = found.step_time[found.step_time["statistic"] == "median"].to_dict("records")
    base, other = int(median["base_ns"]), int(median["other_ns"])
    if base == other:
        return (f"The median step takes {duration(base)} in both.",)
    word = "longer" if other > base else "shorter"
    share = f": {abs(other - base) / base:.1%} {word}" if base else ""
    return (f"The median step takes {duration(other)} instead of {duration(base)}{share}.",)


def _matched_sentences(found: Comparison) -> tuple[str, ...]:
    sentences = []
    for side, shares in found.matched_share.items():
        known = [f"{1 - share:.1%} of {where} operator time" for where, share in shares.items() if share is not None]
        if known:
            sentences.append(f"Unmatched in {side}: {' and '.join(known)}.")
    return tuple(sentences)
