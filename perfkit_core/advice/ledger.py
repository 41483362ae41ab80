"""Texts on the earlier measurements in a ledger: sentences on one item of advice, and a report on the whole ledger."""

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
from perfkit_core.base.language.messages import mark, say
from perfkit_core.base.language.units import format_ratio
from perfkit_core.measure.verify import ledger
from perfkit_core.measure.verify.ledger import Outcome, Record
from perfkit_core.trace.model.columns import Column, count, share, text, words
from perfkit_core.trace.model.report_data import Chart, Report, Section, declared

_OUTCOMES: Final[Mapping[Outcome, str]] = {
    "verified": mark("verified"),
    "helps": mark("helps"),
    "refuted": mark("refuted"),
    "abstained": mark("inconclusive"),
}
_COMMAND: Final = 60
"""Maximum number of characters of a command that are shown. The ledger has the complete command."""
_GROUPS: Final = {
    "judged": mark("predicted and measured"),
    "unpredicted": mark("measured without a prediction"),
    "abstained": mark("measured with an inconclusive result"),
    "unmeasured": mark("not measured"),
}
"""Names of the groups of records. The keys are fields of :class:`perfkit_core.measure.verify.ledger.Summary`."""
_RATIOS: Final = (
    "predicted_saving_ratio", "predicted_low_ratio", "predicted_high_ratio", "saving_ratio", "saving_low_ratio",
    "saving_high_ratio", "noise_ratio",
)  # fmt: skip
COLUMNS: Final[tuple[Column, ...]] = (
    *advice.COLUMNS,
    text("date", "Date"),
    words("outcome", "Outcome"),
    text("base", "Base"),
    text("change", "Change"),
    share("predicted_saving_ratio", "Predicted saving"),
    share("predicted_low_ratio", "Predicted saving, p10"),
    share("predicted_high_ratio", "Predicted saving, p90"),
    share("saving_low_ratio", "Saving, lower end"),
    share("saving_high_ratio", "Saving, upper end"),
    share("noise_ratio", "Noise"),
    share("saving_error_ratio", "Error of the saving"),
    share("step_error_ratio", "Error of the step time"),
    count("records", "Records"),
    text("framework", "Framework"),
    count("verified", "Verified"),
    count("helps", "Helps"),
    count("refuted", "Refuted"),
    count("abstained", "Inconclusive"),
    count("unmeasured", "Not measured"),
    count("sign_right", "Correct sign"),
    share("covered_ratio", "Between p10 and p90"),
    share("bias_ratio", "Predicted minus measured saving"),
)
"""The columns of the tables of advice and of the ledger."""
CHART: Final = Chart(
    "intervals",
    "name",
    ("predicted_low_ratio", "predicted_saving_ratio", "predicted_high_ratio",
     "saving_low_ratio", "saving_ratio", "saving_high_ratio"),
    names=(mark("predicted saving, p10 to p90"), mark("measured saving, 95% interval")),
)  # fmt: skip
_NOTE: Final = mark(
    "Savings and noise are shares of the step time before the change. Errors are (predicted − measured) ÷ measured: "
    "a positive error of the saving means that the predicted saving was too large."
)


def of_rules(path: Path | None, rules: Collection[str]) -> list[Record]:
    return [] if path is None else [record for record in ledger.read(path) if record.rule in rules]


def of_advice(advice: Advice, records: Sequence[Record]) -> list[Record]:
    return [record for record in records if record.outcome in _OUTCOMES and record.advice == advice.id]


def of_rule(advice: Advice, records: Sequence[Record]) -> list[Record]:
    """Return the measurements of the advice's rule in the same framework, the oldest first."""
    return [
        record
        for record in records
        if record.outcome in _OUTCOMES and record.rule == advice.rule and record.framework == advice.framework
    ]


def latest(records: Sequence[Record], advice: str) -> Record | None:
    return next((record for record in reversed(records) if record.advice == advice), None)


def lines(advice: Advice, records: Sequence[Record]) -> Iterator[str]:
    """Yield a line with the last measurement of this advice, else of other advice of the same rule and framework. The
    line names the measured command, because advice on another training may have the same id."""
    same, related = of_advice(advice, records), of_rule(advice, records)
    if same:
        yield say("Measured: {what}", what=_last(same))
    elif related:
        yield say("Measured elsewhere: {what}", what=f"{related[-1].advice}, {_last(related)}")


def _last(records: Sequence[Record]) -> str:
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
            outcome += say(", predicted: {share}", share=format_ratio(last.predicted_saving_ratio))
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
    return sentence + say("; outcomes of all {count} measurements: {outcomes}", count=len(records), outcomes=outcomes)


def report(path: Path) -> Report:
    """Return a report on the ledger. Machine formats also get ``summary``. Raises SourceError."""
    records = ledger.read(path)
    data = {"source": str(path), "summary": asdict(ledger.summary(records))}
    return Report(say("Outcomes of {name}", name=path.name), (), sections(records), data=data)


def sections(records: Sequence[Record]) -> tuple[Section, ...]:
    """Return sections: all records, groups of records, outcomes per rule. Without records, only the first section."""
    if not records:
        return (section(records),)
    groups = Section("ledger_groups", say("Outcomes"), grouped(records), within="ledger")
    rules = Section("ledger_rules", say("By rule"), by_rule(records), within="ledger")
    return declared((section(records), groups, rules), COLUMNS)


def section(records: Sequence[Record]) -> Section:
    """Return a section with a summary in words and a row for each record, the oldest record first."""
    summary, lines = ledger.summary(records), []
    if summary.records:
        counts = ((getattr(summary, group), say(label)) for group, label in _GROUPS.items())
        groups = [f"{number} {label}" for number, label in counts if number]
        every = say("1 record") if summary.records == 1 else say("{count} records", count=summary.records)
        lines.append(say("{records}: {groups:and}.", records=every, groups=groups))
    if summary.judged:
        sign = mark("The predicted sign of the saving was correct in {right} of {count} measurements.")
        lines.append(say(sign, right=summary.sign_right, count=summary.judged))
        medians = (
            (summary.saving_error, mark("{error} for the predicted saving")),
            (summary.step_error, mark("{error} for the predicted step time")),
        )
        errors = [say(label, error=format_ratio(error)) for error, label in medians if error is not None]
        accuracy = [say("Median error: {errors:and}.", errors=errors)] if errors else []
        if summary.covered is not None:
            covered = mark("{share} of the measured savings lay between the predicted p10 and p90.")
            accuracy.append(say(covered, share=format_ratio(summary.covered)))
        lines.append(" ".join(accuracy))
    return Section(
        "ledger", say("Measured outcomes"), table(records), say(_NOTE), say("the ledger has no records"), chart=CHART,
        lines=tuple(lines), columns=COLUMNS,
    )  # fmt: skip


def table(records: Sequence[Record]) -> pd.DataFrame:
    """Return a table with one row per record. Unknown values are NA. Savings and noise are shares of the step time of
    the base.

    - ``name``: the id of the advice, else its rule, else the command of the change
    - ``date``, ``outcome``: date and outcome of the measurement
    - ``predicted_saving_ratio``: predicted saving, with p10 ``predicted_low_ratio`` and p90 ``predicted_high_ratio``
    - ``saving_ratio``: measured saving, with its 95% interval ``saving_low_ratio`` to ``saving_high_ratio``
    - ``noise_ratio``: noise of the measurement
    - ``saving_error_ratio``, ``step_error_ratio``: signed errors of the predicted saving and step time
    - ``base``, ``change``: the commands"""
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
    frame = pd.DataFrame(rows, columns=["name", "date", "outcome", *ratios, "base", "change"])
    return frame.astype(dict.fromkeys(ratios, "Float64"))


def grouped(records: Sequence[Record]) -> pd.DataFrame:
    """Return a table with one row per group of records: its name ``group``, its number of ``records``, and their share
    of all records (``ratio``). Each record is in exactly one group."""
    summary = ledger.summary(records)
    counts = [getattr(summary, group) for group in _GROUPS]
    groups = pd.DataFrame({"group": list(map(say, _GROUPS.values())), "records": counts})
    return groups.assign(ratio=groups["records"] / max(len(records), 1))


def by_rule(records: Sequence[Record]) -> pd.DataFrame:
    """Return a table with one row per rule and framework. Unknown values are NA.

    - ``rule``, ``framework``, and the number of ``records``
    - ``verified``, ``helps``, ``refuted``, ``abstained``, ``unmeasured``: number of records with this outcome
    - ``sign_right``: number of records whose predicted saving has the right sign
    - ``saving_error_ratio``, ``step_error_ratio``: medians of the absolute errors
    - ``covered_ratio``: share of measured savings between the predicted p10 and p90
    - ``bias_ratio``: mean of the predicted minus the measured saving, as a share of the step time"""
    groups: dict[tuple[str, str], list[Record]] = {}
    for record in records:
        groups.setdefault((record.rule or "", record.framework or ""), []).append(record)
    rows: list[dict[str, Any]] = []
    for (rule, framework), group in groups.items():
        outcomes, summary = Counter(record.outcome for record in group), ledger.summary(group)
        rows.append({
            "rule": rule or pd.NA, "framework": framework or pd.NA, "records": len(group),
            **{name: outcomes[name] for name in _OUTCOMES}, "unmeasured": outcomes["predicted"],
            "sign_right": summary.sign_right, "saving_error_ratio": summary.saving_error,
            "step_error_ratio": summary.step_error, "covered_ratio": summary.covered, "bias_ratio": summary.bias,
        })  # fmt: skip
    frame = pd.DataFrame(rows).sort_values("records", ascending=False, kind="stable", ignore_index=True)
    return frame.astype({name: "Float64" for name in frame.columns if name.endswith("_ratio")})
