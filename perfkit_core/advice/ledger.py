"""What was measured before of an advice, or of another finding of its rule? From the ledger, in a sentence.

What became of the predictions of a ledger, and which rules are to be believed? Counts that add up to its records.

How did predictions do that were measured? The records of a ledger as a table, with signed errors.
"""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Final

import pandas as pd

from perfkit_core.advice import wording
from perfkit_core.advice.columns import COLUMNS
from perfkit_core.advice.model import Advice
from perfkit_core.language.messages import mark, say
from perfkit_core.language.units import format_ratio
from perfkit_core.report.model import Chart, Report, Section, declared
from perfkit_core.verify import ledger
from perfkit_core.verify.ledger import Record, Summary

_WORDS: Final = {
    "verified": mark("verified"),
    "refuted": mark("refuted"),
    "abstained": mark("could not tell"),
}

_COMMAND: Final = 60
"""Characters of a command; the ledger has all of it."""


def lines(advice: Advice, records: Sequence[Record]) -> Iterator[str]:
    """The last measurement of this advice, else of another one of the same rule and framework; nothing without any. The
    command is said with it: another training may have advice of the same id."""
    own, others = of_advice(advice, records), of_rule(advice, records)
    if own:
        yield say("Measured {what}", what=f"{_said(own[-1])}{_among(own)}")
    elif others:
        told = f"{others[-1].advice} {_said(others[-1])}{_among(others)}"
        yield say("Measured elsewhere: {what}", what=told)


def of_advice(advice: Advice, records: Sequence[Record]) -> list[Record]:
    """The measurements of an advice, the oldest first."""
    return [one for one in records if one.outcome in _WORDS and one.advice == advice.id]


def of_rule(advice: Advice, records: Sequence[Record]) -> list[Record]:
    """The measurements of its rule in its framework, the oldest first. Records without a framework are of none."""
    return [
        one
        for one in records
        if one.outcome in _WORDS and one.rule == advice.rule and one.framework == advice.framework
    ]


def _said(one: Record) -> str:
    words = {
        "date": one.date[:10],
        "command": textwrap.shorten(one.change, _COMMAND),
        "outcome": f"{say(_WORDS[one.outcome])}{_savings(one)}",
    }
    if one.cpu:
        return say("{date} on {cpu} by {command}: {outcome}", cpu=f"{one.cpu}{_cpus(len(one.cpus or ()))}", **words)
    return say("{date} by {command}: {outcome}", **words)


def _cpus(count: int) -> str:
    if count < 2:
        return say(" (1 CPU)") if count else ""
    return say(" ({count} CPUs)", count=count)


def _savings(one: Record) -> str:
    """Measured and predicted, as shares of the step."""
    if one.saving_ratio is None:
        return ""
    saved = say("; cost {share}", share=format_ratio(-one.saving_ratio))
    if one.saving_ratio >= 0:
        saved = say("; saved {share}", share=format_ratio(one.saving_ratio))
    if None not in (one.saving_low_ratio, one.saving_high_ratio):
        low, high = format_ratio(one.saving_low_ratio or 0), format_ratio(one.saving_high_ratio or 0)
        saved += say(" ({low} to {high})", low=low, high=high)
    if one.predicted_saving_ratio is None:
        return saved
    return saved + say(", {share} was predicted", share=format_ratio(one.predicted_saving_ratio))


def _among(found: Sequence[Record]) -> str:
    """What became of all of them, where there are several."""
    if len(found) < 2:
        return ""
    counts = Counter(_WORDS[one.outcome] for one in found)
    told = say(", ").join(f"{count} {say(word)}" for word, count in counts.items())
    return say("; the last of {count} measurements: {outcomes}", count=len(found), outcomes=told)


def grouped(records: Sequence[Record]) -> pd.DataFrame:
    """Every record in one group: group, records (how many), ratio (of all)."""
    found = ledger.summary(records)
    counts = {
        say("predicted and judged"): found.told,
        say("judged without a prediction"): found.unpredicted,
        say("measured without a verdict"): found.abstained,
        say("not measured"): found.unmeasured,
    }
    made = pd.DataFrame({"group": list(counts), "records": list(counts.values())})
    return made.assign(ratio=made["records"] / max(len(records), 1))


def by_rule(records: Sequence[Record]) -> pd.DataFrame:
    """rule, framework, records, verified, refuted, abstained, unmeasured, sign_right (of those predicted
    and judged), saving_error_ratio and step_error_ratio (medians of the absolute errors), covered_ratio (steps between
    p10 and p90). NA where unknown."""
    keys = dict.fromkeys((one.rule or "", one.framework or "") for one in records)
    rows = [_of(rule, framework, records) for rule, framework in keys]
    made = pd.DataFrame(rows).sort_values("records", ascending=False, kind="stable", ignore_index=True)
    ratios = [name for name in made.columns if name.endswith("_ratio")]
    return made.astype(dict.fromkeys(ratios, "Float64"))


def _of(rule: str, framework: str, records: Sequence[Record]) -> dict[str, Any]:
    own = [one for one in records if ((one.rule or ""), (one.framework or "")) == (rule, framework)]
    outcomes, found = Counter(one.outcome for one in own), ledger.summary(own)
    return {
        "rule": rule or pd.NA,
        "framework": framework or pd.NA,
        "records": len(own),
        **{name: outcomes[name] for name in ("verified", "refuted", "abstained")},
        "unmeasured": outcomes["predicted"],
        "sign_right": found.sign_right,
        "saving_error_ratio": found.saving_error,
        "step_error_ratio": found.step_error,
        "covered_ratio": found.covered,
    }


_TEXTS: Final = ("name", "date", "outcome")
_COMMANDS: Final = ("base", "change")
_RATIOS: Final = (
    "predicted_saving_ratio", "predicted_low_ratio", "predicted_high_ratio", "saving_ratio", "saving_low_ratio",
    "saving_high_ratio", "noise_ratio", "saving_error_ratio", "step_error_ratio",
)  # fmt: skip
_SIGNED: Final = 2
"""Of them, the errors at the end."""
CHART: Final = Chart(
    "intervals",
    "name",
    ("predicted_low_ratio", "predicted_saving_ratio", "predicted_high_ratio",
     "saving_low_ratio", "saving_ratio", "saving_high_ratio"),
    names=(mark("saving predicted, p10 to p90"), mark("saving measured, 95% interval")),
)  # fmt: skip
"""The picture of :func:`table`."""
_NOTE: Final = mark(
    "Savings and noise are shares of the step before the change; errors are (predicted − measured) ÷ measured, so that "
    "too much was promised where that of the saving is positive."
)


def report(path: Path) -> Report:
    """The whole ledger; machine formats have what it comes to as ``summary``. Raises SourceError."""
    found = ledger.read(path)
    data = {"source": str(path), "summary": asdict(ledger.summary(found))}
    return Report(say("Outcomes of {name}", name=path.name), (), sections(found), data=data)


def of_rules(path: Path | None, rules: Collection[str]) -> list[Record]:
    """What became of predictions of these rules before; nothing without a ledger. Raises SourceError."""
    return [] if path is None else [one for one in ledger.read(path) if one.rule in rules]


def with_outcomes(given: Report, records: Sequence[Record]) -> Report:
    """The report with the records at its end."""
    return replace(given, sections=(*given.sections, section(records)))


def latest(records: Sequence[Record], advice: str) -> Record | None:
    """The last measurement of an advice (its id)."""
    return next((one for one in reversed(records) if one.advice == advice), None)


def section(records: Sequence[Record]) -> Section:
    """A row a record, the oldest first, below what they come to."""
    lines, empty = tuple(_lines(ledger.summary(records))), say("nothing was measured yet")
    title = say("Measured outcomes")
    return Section("ledger", title, table(records), say(_NOTE), empty, chart=CHART, lines=lines, columns=COLUMNS)


def sections(records: Sequence[Record]) -> tuple[Section, ...]:
    """The same, with its groups and what came of each rule as parts of it."""
    if not records:
        return (section(records),)
    groups = Section("ledger_groups", say("What became of them"), grouped(records), within="ledger")
    rules = Section("ledger_rules", say("By rule"), by_rule(records), within="ledger")
    return declared((section(records), groups, rules), COLUMNS)


def table(records: Sequence[Record]) -> pd.DataFrame:
    """name (the advice, else its rule, else the command), date, outcome, base and change (the commands, at the end);
    shares of the base:
    predicted_saving_ratio, predicted_low_ratio and predicted_high_ratio (p10 to p90), saving_ratio (measured),
    saving_low_ratio and saving_high_ratio (its interval), noise_ratio; and signed: saving_error_ratio,
    step_error_ratio. NA where unknown."""
    rows = [_row(one) for one in records]
    found = pd.DataFrame(rows, columns=[*_TEXTS, *_RATIOS, *_COMMANDS])
    return found.astype(dict.fromkeys(_RATIOS, "Float64"))


def _row(one: Record) -> dict[str, Any]:
    named = {name: getattr(one, name) for name in (*_TEXTS[1:], *_RATIOS[:-_SIGNED], *_COMMANDS)}
    return named | {
        "name": one.advice or one.rule or one.change,
        "saving_error_ratio": one.saving_error,
        "step_error_ratio": one.step_error,
    }


def as_data(records: Sequence[Record]) -> list[dict[str, Any]]:
    """The records as they are in the file."""
    import msgspec

    found: list[dict[str, Any]] = msgspec.to_builtins(list(records))
    return found


def _lines(found: Summary) -> Iterator[str]:
    if found.records:
        groups = wording.both(list(_groups(found)))
        yield say("{records}: {groups}.", records=_measurements(found.records), groups=groups)
    if not found.told:
        return
    yield say(
        "Of those predicted and judged, the sign of the saving was right in {right} of {count}.",
        right=found.sign_right,
        count=found.told,
    )
    yield " ".join(_errors(found))


def _errors(found: Summary) -> Iterator[str]:
    errors = []
    if found.saving_error is not None:
        errors.append(say("of the saving {error}", error=format_ratio(found.saving_error)))
    if found.step_error is not None:
        errors.append(say("of the step {error}", error=format_ratio(found.step_error)))
    if errors:
        yield say("Median error {errors}.", errors=wording.both(errors))
    if found.covered is not None:
        yield say("{share} of the savings lay between p10 and p90.", share=format_ratio(found.covered))


def _measurements(count: int) -> str:
    return say("1 record") if count == 1 else say("{count} records", count=count)


def _groups(found: Summary) -> Iterator[str]:
    """Every record is in one of them."""
    groups = (
        (found.told, say("predicted and judged")),
        (found.unpredicted, say("judged without a prediction")),
        (found.abstained, say("measured without a verdict (it could not be told)")),
        (found.unmeasured, say("not measured")),
    )
    yield from (f"{count} {what}" for count, what in groups if count)
