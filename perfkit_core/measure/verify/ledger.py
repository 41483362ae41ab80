"""The ledger: a file of predictions and outcomes, one JSON record per line. Processes may append in parallel."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, Literal

import numpy as np

from perfkit_core.base.system import paths
from perfkit_core.base.system.outside_text import decode_json
from perfkit_core.errors import SourceError, UsageError
from perfkit_core.measure.verify.prediction import saving_ratio

Outcome = Literal["predicted", "verified", "helps", "refuted", "abstained"]
"""``predicted``: not measured yet. ``verified``: the measured saving lies in the predicted interval. ``helps``: there
is a saving, but outside of the interval, or nothing was predicted. ``refuted``: slower, or no saving although one was
predicted. ``abstained``: no change within noise, or "cannot tell"."""

HELPING: Final = ("verified", "helps")
_CONCLUSIVE: Final = (*HELPING, "refuted")


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """A prediction, a measurement, or both. Unknown fields are None.

    - ``base_hash``, ``change_hash``: hashes of the command and its scripts. Editing a script changes the hash.
    - ``p10_ns`` … ``p90_ns``: percentiles of the predicted step time.
    - ``saving_p10_ns``, ``saving_p90_ns``: percentiles of the predicted saving.
    - ``replayed_saving_ratio``: the saving by the replay alone, before it was adjusted by earlier outcomes.
    - ``rule_version``, ``runtime``, ``framework_version``: of the prediction; ``runtime`` is "host" or "device".
    - ``base_median``, ``change_median``: in the unit of the metric (ns for ``step_time``).
    - ``saving_ratio``, its interval, and ``noise_ratio``: measured, as shares of the base.
    - ``saving_error``, ``step_error``: (predicted − measured) / |measured|."""

    date: str
    outcome: Outcome
    base: str
    change: str
    base_hash: str | None = None
    change_hash: str | None = None
    perfkit: str | None = None
    cpu: str | None = None
    cpus: Sequence[int] | None = None
    threads: Mapping[str, str] = field(default_factory=dict)
    advice: str | None = None
    rule: str | None = None
    rule_version: int | None = None
    framework: str | None = None
    framework_version: str | None = None
    runtime: str | None = None
    metric: str | None = None
    higher_is_better: bool = False
    base_ns: int | None = None
    p10_ns: int | None = None
    p50_ns: int | None = None
    p90_ns: int | None = None
    saving_p10_ns: int | None = None
    saving_p90_ns: int | None = None
    replayed_saving_ratio: float | None = None
    base_median: float | None = None
    change_median: float | None = None
    runs: int | None = None
    saving_ratio: float | None = None
    saving_low_ratio: float | None = None
    saving_high_ratio: float | None = None
    noise_ratio: float | None = None
    saving_error: float | None = None
    step_error: float | None = None

    @property
    def predicted_saving_ratio(self) -> float | None:
        return self._predicted(None, self.p50_ns)

    @property
    def predicted_low_ratio(self) -> float | None:
        return self._predicted(self.saving_p10_ns, self.p90_ns)

    @property
    def predicted_high_ratio(self) -> float | None:
        return self._predicted(self.saving_p90_ns, self.p10_ns)

    def _predicted(self, saving_ns: int | None, after_ns: int | None) -> float | None:
        return saving_ratio(self.base_ns, saving_ns, after_ns) if after_ns is not None and self.base_ns else None

    @property
    def judged(self) -> bool:
        """Whether the record has a prediction, and a measurement that is not inconclusive."""
        measured = self.outcome in _CONCLUSIVE and self.saving_ratio is not None
        return measured and self.predicted_saving_ratio is not None

    @property
    def covered(self) -> bool:
        """Whether the measured saving lies in the predicted interval."""
        low, high = self.predicted_low_ratio, self.predicted_high_ratio
        return low is not None and high is not None and low <= (self.saving_ratio or 0) <= high


@dataclass(frozen=True, slots=True)
class Summary:
    """Statistics of a ledger. ``records = judged + unpredicted + abstained + unmeasured``."""

    records: int
    judged: int  # The number of predictions with a conclusive measurement.
    unpredicted: int  # The number of conclusive measurements of changes without a prediction.
    abstained: int  # The number of inconclusive measurements.
    unmeasured: int  # The number of predictions without a measurement.
    sign_right: int  # The number of judged predictions whose sign (saving or loss) was right.
    saving_error: float | None  # Median of |Record.saving_error| over the predictions whose change helps.
    step_error: float | None  # Median of |Record.step_error| over the judged predictions.
    covered: float | None  # Share of judged predictions whose measured saving lies between p10 and p90.
    bias: float | None  # Mean of the predicted minus the measured saving ratio over the judged predictions.


def append(path: Path, record: Record) -> None:
    """Append a record as one line. Other processes may do so at the same time. Raises UsageError if writing fails."""
    import msgspec

    try:
        paths.append_line(path, msgspec.json.encode(record))
    except OSError as error:
        raise UsageError(f"{path}: cannot be written ({error.strerror})", "choose another --ledger FILE") from None


def read(path: Path) -> list[Record]:
    """Return all records, the oldest first. Raises SourceError, with the line number, if the file is not a ledger."""
    try:
        lines = path.read_bytes().splitlines()
    except OSError as error:
        hint = "write a ledger with perfkit verify --ledger FILE"
        raise SourceError(f"{path}: cannot be read ({error.strerror})", hint) from None
    records = []
    for number, line in enumerate(lines, start=1):
        try:
            records += [_worded(decode_json(line, Record))] if line.strip() else []
        except ValueError as error:
            raise SourceError(f"{path}, line {number}: not a ledger record ({error})", "remove the line") from None
    return records


def _worded(record: Record) -> Record:
    """Return a record in whose outcome "verified" means that the saving lies in the predicted interval."""
    return replace(record, outcome="helps") if record.outcome == "verified" and not record.covered else record


def summary(records: Sequence[Record]) -> Summary:
    judged = [record for record in records if record.judged]
    outcomes = Counter(record.outcome for record in records)
    sign_right, excess = 0, []
    for record in judged:
        sign_right += (record.outcome in HELPING) == ((record.predicted_saving_ratio or 0) > 0)
        excess.append((record.predicted_saving_ratio or 0.0) - (record.saving_ratio or 0.0))
    return Summary(
        records=len(records),
        judged=len(judged),
        unpredicted=sum(outcomes[name] for name in _CONCLUSIVE) - len(judged),
        abstained=outcomes["abstained"],
        unmeasured=outcomes["predicted"],
        sign_right=sign_right,
        saving_error=_median([record.saving_error for record in judged if record.outcome in HELPING]),
        step_error=_median([record.step_error for record in judged]),
        covered=float(np.mean([record.covered for record in judged])) if judged else None,
        bias=float(np.mean(excess)) if judged else None,
    )


def _median(errors: Sequence[float | None]) -> float | None:
    sizes = [abs(error) for error in errors if error is not None]
    return float(np.median(sizes)) if sizes else None
