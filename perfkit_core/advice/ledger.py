"""Earlier measurements of advice: in words for one advice, and the whole ledger as sections with outcomes."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import pandas as pd

from perfkit_core.advice import advice
from perfkit_core.advice.advice import Advice
from perfkit_core.advice.text import joined
from perfkit_core.language.messages import mark, say
from perfkit_core.language.units import format_ratio
from perfkit_core.model.columns import Column, count, share, text, words
from perfkit_core.report.model import Chart, Report, Section, declared
from perfkit_core.verify import ledger
from perfkit_core.verify.ledger import Outcome, Record

_OUTCOMES: Final[Mapping[Outcome, str]] = {
    "verified": mark("verified"),
    "refuted": mark("refuted"),
    "abstained": mark("could not tell"),
}
_COMMAND: Final = 60
"""Characters of a command that are shown; the ledger has all of it."""
_RATIOS: Final = (
    "predicted_saving_ratio", "predicted_low_ratio", "predicted_high_ratio", "saving_ratio", "saving_low_ratio",
    "saving_high_ratio", "noise_ratio",
)  # fmt: skip
"""Columns of :func:`table` that are fields of a record."""
COLUMNS: Final[tuple[Column, ...]] = (
    *advice.COLUMNS,
    text("date", "Date"),
    words("outcome", "Outcome"),
    text("base", "Base"),
    text("change", "Change"),
    share("predicted_saving_ratio", "Predicted saving"),
    share("predicted_low_ratio", "Predicted low"),
    share("predicted_high_ratio", "Predicted high"),
    share("saving_low_ratio", "Saving low"),
    share("saving_high_ratio", "Saving high"),
    share("noise_ratio", "Noise"),
    share("saving_error_ratio", "Saving error"),
    share("step_error_ratio", "Step error"),
    count("records", "Records"),
    text("framework", "Framework"),
    count("verified", "Verified"),
    count("refuted", "Refuted"),
    count("abstained", "Abstained"),
    count("predicted", "Predicted"),
    count("sign_right", "Sign right"),
    share("covered_ratio", "Covered"),
)
"""The columns of advice and of its ledger."""
CHART: Final = Chart(
    "intervals",
    "name",
    ("predicted_low_ratio", "predicted_saving_ratio", "predicted_high_ratio",
     "saving_low_ratio", "saving_ratio", "saving_high_ratio"),
    names=(mark("saving predicted, p10 to p90"), mark("saving measured, 95% interval")),
)  # fmt: skip
_NOTE: Final = mark(
    "Savings and noise are shares of the step before the change; errors are (predicted − measured) ÷ measured; a "
    "positive error of the saving means that too much was predicted."
)


def of_rules(path: Path | None, rules: Collection[str]) -> list[Record]:
    """Return the records of some rules; none without a ledger. Raises SourceError."""
    return [] if path is None else [record for record in ledger.read(path) if record.rule in rules]


def of_advice(advice: Advice, records: Sequence[Record]) -> list[Record]:
    return [record for record in records if record.outcome in _OUTCOMES and record.advice == advice.id]


def of_rule(advice: Advice, records: Sequence[Record]) -> list[Record]:
    """Return the measurements of its rule in its framework, the oldest first, without those of unknown framework."""
    return [
        record
        for record in records
        if record.outcome in _OUTCOMES and record.rule == advice.rule and record.framework == advice.framework
    ]


def latest(records: Sequence[Record], advice: str) -> Record | None:
    return next((record for record in reversed(records) if record.advice == advice), None)


def lines(advice: Advice, records: Sequence[Record]) -> Iterator[str]:
    """Yield the last measurement of this advice, else of another one of the same rule and framework. It names the
    command, because another training may have advice with the same id."""
    own, others = of_advice(advice, records), of_rule(advice, records)
    if own:
        yield say("Measured {what}", what=_last(own))
    elif others:
        yield say("Measured elsewhere: {what}", what=f"{others[-1].advice} {_last(others)}")


def _last(records: Sequence[Record]) -> str:
    """Return the last measurement in words, and the outcomes of all if there are several."""
    last = records[-1]
    outcome = say(_OUTCOMES[last.outcome])
    if last.saving_ratio is not None:
        saved = say("; cost {share}", share=format_ratio(-last.saving_ratio))
        if last.saving_ratio >= 0:
            saved = say("; saved {share}", share=format_ratio(last.saving_ratio))
        outcome += saved
        if last.saving_low_ratio is not None and last.saving_high_ratio is not None:
            low, high = format_ratio(last.saving_low_ratio), format_ratio(last.saving_high_ratio)
            outcome += say(" ({low} to {high})", low=low, high=high)
        if last.predicted_saving_ratio is not None:
            outcome += say(", {share} was predicted", share=format_ratio(last.predicted_saving_ratio))
    values = {"date": last.date[:10], "command": textwrap.shorten(last.change, _COMMAND), "outcome": outcome}
    if last.cpu:
        cpus = len(last.cpus or ())
        several = say(" ({count} CPUs)", count=cpus) if cpus > 1 else say(" (1 CPU)") if cpus else ""
        sentence = say("{date} on {cpu} by {command}: {outcome}", cpu=f"{last.cpu}{several}", **values)
    else:
        sentence = say("{date} by {command}: {outcome}", **values)
    if len(records) < 2:
        return sentence
    counts = Counter(_OUTCOMES[record.outcome] for record in records)
    outcomes = say(", ").join(f"{count} {say(word)}" for word, count in counts.items())
    return sentence + say("; the last of {count} measurements: {outcomes}", count=len(records), outcomes=outcomes)


def report(path: Path) -> Report:
    """Return the whole ledger; machine formats get its summary as ``summary``. Raises SourceError."""
    records = ledger.read(path)
    data = {"source": str(path), "summary": asdict(ledger.summary(records))}
    return Report(say("Outcomes of {name}", name=path.name), (), sections(records), data=data)


def sections(records: Sequence[Record]) -> tuple[Section, ...]:
    """Return :func:`section`, with its groups and the outcomes of each rule as parts."""
    if not records:
        return (section(records),)
    groups = Section("ledger_groups", say("Outcomes"), grouped(records), within="ledger")
    rules = Section("ledger_rules", say("By rule"), by_rule(records), within="ledger")
    return declared((section(records), groups, rules), COLUMNS)


def section(records: Sequence[Record]) -> Section:
    """Return a row for each record, the oldest first, after their summary in words."""
    summary, lines = ledger.summary(records), []
    if summary.records:
        groups = joined([
            f"{number} {label}"
            for number, label in (
                (summary.told, say("predicted and judged")),
                (summary.unpredicted, say("judged without a prediction")),
                (summary.abstained, say("measured without a verdict (inconclusive)")),
                (summary.unmeasured, say("not measured")),
            )
            if number
        ])  # fmt: skip
        every = say("1 record") if summary.records == 1 else say("{count} records", count=summary.records)
        lines.append(say("{records}: {groups}.", records=every, groups=groups))
    if summary.told:
        sign = mark("Of those predicted and judged, the sign of the saving was right in {right} of {count}.")
        lines.append(say(sign, right=summary.sign_right, count=summary.told))
        medians = (
            (summary.saving_error, mark("of the saving {error}")), (summary.step_error, mark("of the step {error}")),
        )  # fmt: skip
        errors = [say(label, error=format_ratio(error)) for error, label in medians if error is not None]
        accuracy = [say("Median error {errors}.", errors=joined(errors))] if errors else []
        if summary.covered is not None:
            covered = format_ratio(summary.covered)
            accuracy.append(say("{share} of the savings lay between p10 and p90.", share=covered))
        lines.append(" ".join(accuracy))
    return Section(
        "ledger", say("Measured outcomes"), table(records), say(_NOTE), say("no measured outcomes yet"), chart=CHART,
        lines=tuple(lines), columns=COLUMNS,
    )  # fmt: skip


def table(records: Sequence[Record]) -> pd.DataFrame:
    """Return name (the advice, else its rule, else the command), date, outcome, base and change (commands); shares of
    the base: predicted_saving_ratio, predicted_low_ratio and predicted_high_ratio (p10 to p90), saving_ratio
    (measured), saving_low_ratio and saving_high_ratio (its interval), noise_ratio; and signed: saving_error_ratio,
    step_error_ratio. NA if unknown."""
    rows = [
        {
            "name": record.advice or record.rule or record.change, "date": record.date, "outcome": record.outcome,
            **{name: getattr(record, name) for name in _RATIOS},
            "saving_error_ratio": record.saving_error, "step_error_ratio": record.step_error,
            "base": record.base, "change": record.change,
        }
        for record in records
    ]  # fmt: skip
    ratios = (*_RATIOS, "saving_error_ratio", "step_error_ratio")
    made = pd.DataFrame(rows, columns=["name", "date", "outcome", *ratios, "base", "change"])
    return made.astype(dict.fromkeys(ratios, "Float64"))


def grouped(records: Sequence[Record]) -> pd.DataFrame:
    """Return the columns group, records (count), ratio (of all); each record is in one group."""
    summary = ledger.summary(records)
    counts = {
        say("predicted and judged"): summary.told,
        say("judged without a prediction"): summary.unpredicted,
        say("measured without a verdict"): summary.abstained,
        say("not measured"): summary.unmeasured,
    }
    made = pd.DataFrame({"group": list(counts), "records": list(counts.values())})
    return made.assign(ratio=made["records"] / max(len(records), 1))


def by_rule(records: Sequence[Record]) -> pd.DataFrame:
    """Return rule, framework, records, verified, refuted, abstained, unmeasured, sign_right (of those predicted and
    judged), saving_error_ratio and step_error_ratio (medians of the absolute errors), covered_ratio (steps between p10
    and p90). NA if unknown."""
    groups: dict[tuple[str, str], list[Record]] = {}
    for record in records:
        groups.setdefault((record.rule or "", record.framework or ""), []).append(record)
    rows: list[dict[str, Any]] = []
    for (rule, framework), own in groups.items():
        outcomes, summary = Counter(record.outcome for record in own), ledger.summary(own)
        rows.append({
            "rule": rule or pd.NA, "framework": framework or pd.NA, "records": len(own),
            **{name: outcomes[name] for name in _OUTCOMES}, "unmeasured": outcomes["predicted"],
            "sign_right": summary.sign_right, "saving_error_ratio": summary.saving_error,
            "step_error_ratio": summary.step_error, "covered_ratio": summary.covered,
        })  # fmt: skip
    made = pd.DataFrame(rows).sort_values("records", ascending=False, kind="stable", ignore_index=True)
    return made.astype({name: "Float64" for name in made.columns if name.endswith("_ratio")})
