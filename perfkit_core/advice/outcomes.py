"""How did predictions do that were measured? The records of a ledger as a table, with signed errors."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Final

import pandas as pd

from perfkit_core.advice import ledger_groups, wording
from perfkit_core.advice.columns import COLUMNS
from perfkit_core.language import in_english, say
from perfkit_core.report.model import Chart, Report, Section, declared
from perfkit_core.verification import ledger
from perfkit_core.verification.ledger import Record, Summary

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
    names=(in_english("saving predicted, p10 to p90"), in_english("saving measured, 95% interval")),
)  # fmt: skip
"""The picture of :func:`table`."""
_NOTE: Final = in_english(
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
    groups = Section("ledger_groups", say("What became of them"), ledger_groups.groups(records), within="ledger")
    rules = Section("ledger_rules", say("By rule"), ledger_groups.by_rule(records), within="ledger")
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
        errors.append(say("of the saving {error}", error=f"{found.saving_error:.1%}"))
    if found.step_error is not None:
        errors.append(say("of the step {error}", error=f"{found.step_error:.1%}"))
    if errors:
        yield say("Median error {errors}.", errors=wording.both(errors))
    if found.covered is not None:
        yield say("{share} of the savings lay between p10 and p90.", share=f"{found.covered:.0%}")


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
