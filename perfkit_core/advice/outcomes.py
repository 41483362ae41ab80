"""How did predictions do that were measured? The records of a ledger as a table, with signed errors."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Final

import pandas as pd

from perfkit_core.advice import wording
from perfkit_core.report.model import Report, Section
from perfkit_core.verification import ledger
from perfkit_core.verification.ledger import Record, Summary

_TEXTS: Final = ("date", "advice", "outcome", "base", "change")
_RATIOS: Final = (
    "predicted_saving_ratio", "saving_ratio", "saving_low_ratio", "saving_high_ratio", "noise_ratio",
    "saving_error_ratio", "step_error_ratio",
)  # fmt: skip
_NOTE: Final = (
    "Savings and noise are shares of the step before the change; errors are (predicted − measured) ÷ measured, so that "
    "too much was promised where that of the saving is positive."
)


def report(path: Path) -> Report:
    """The whole ledger; machine formats have what it comes to as ``summary``. Raises SourceError."""
    found = ledger.read(path)
    data = {"source": str(path), "summary": asdict(ledger.summary(found))}
    return Report(f"Outcomes of {path.name}", (), (section(found),), data=data)


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
    lines = tuple(_lines(ledger.summary(records)))
    return Section("ledger", "Measured outcomes", table(records), _NOTE, empty="nothing was measured yet", lines=lines)


def table(records: Sequence[Record]) -> pd.DataFrame:
    """date, advice (its id, or rule), outcome, base and change (the commands), then shares of the base:
    predicted_saving_ratio, saving_ratio (measured), saving_low_ratio and saving_high_ratio (its interval), noise_ratio;
    and signed: saving_error_ratio, step_error_ratio. NA where unknown."""
    rows = [_row(one) for one in records]
    found = pd.DataFrame(rows, columns=[*_TEXTS, *_RATIOS])
    return found.astype(dict.fromkeys(_RATIOS, "Float64"))


def _row(one: Record) -> dict[str, Any]:
    named = {name: getattr(one, name) for name in (*_TEXTS, *_RATIOS[:5])}
    return named | {
        "advice": one.advice or one.rule,
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
        yield f"{_measurements(found.records)}: {wording.both(list(_groups(found)))}."
    if not found.told:
        return
    said = (("saving", found.saving_error), ("step", found.step_error))
    errors = [f"of the {name} {error:.1%}" for name, error in said if error is not None]
    yield f"Of those predicted and judged, the sign of the saving was right in {found.sign_right} of {found.told}."
    covered = "" if found.covered is None else f" {found.covered:.0%} of the steps lay between p10 and p90."
    yield f"Median error {' and '.join(errors)}.{covered}" if errors else covered.strip()


def _measurements(count: int) -> str:
    return f"{count} record{'s' * (count != 1)}"


def _groups(found: Summary) -> Iterator[str]:
    """Every record is in one of them."""
    groups = (
        (found.told, "predicted and judged"),
        (found.unpredicted, "judged without a prediction"),
        (found.abstained, "measured without a verdict (it could not be told)"),
        (found.unmeasured, "not measured"),
    )
    yield from (f"{count} {what}" for count, what in groups if count)
