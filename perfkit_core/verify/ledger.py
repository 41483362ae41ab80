"""The ledger: predictions and measured outcomes, one line of JSON each, appended by any number of processes."""

from __future__ import annotations

import contextlib
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np

from perfkit_core.errors import SourceError, UsageError
from perfkit_core.verify.prediction import saving_ratio

Outcome = Literal["predicted", "verified", "refuted", "abstained"]
"""``predicted``: not measured; ``abstained``: measured, without a verdict."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One measurement. Times of predictions in ns, medians in the unit of the metric (``step_time``: ns), savings and
    noise as shares of the base, errors signed and relative ((predicted − measured) / measured). None: not known.
    ``base_hash`` and ``change_hash`` tell commands with the same text apart whose scripts differ."""

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
    framework: str | None = None
    metric: str | None = None
    higher_is_better: bool = False
    base_ns: int | None = None
    p10_ns: int | None = None
    p50_ns: int | None = None
    p90_ns: int | None = None
    saving_p10_ns: int | None = None
    saving_p90_ns: int | None = None
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
        """The median saving, as a share of the base it was predicted for."""
        return self._predicted(None, self.p50_ns)

    @property
    def predicted_low_ratio(self) -> float | None:
        """The p10 of the saving, as a share of the base."""
        return self._predicted(self.saving_p10_ns, self.p90_ns)

    @property
    def predicted_high_ratio(self) -> float | None:
        """The p90 of the saving, as a share of the base."""
        return self._predicted(self.saving_p90_ns, self.p10_ns)

    def _predicted(self, saving_ns: int | None, after_ns: int | None) -> float | None:
        return saving_ratio(self.base_ns, saving_ns, after_ns) if after_ns is not None and self.base_ns else None

    @property
    def told(self) -> bool:
        """Whether a prediction was measured with a verdict."""
        return (
            self.outcome in ("verified", "refuted")
            and self.predicted_saving_ratio is not None
            and self.saving_ratio is not None
        )


@dataclass(frozen=True, slots=True)
class Summary:
    """Each of the ``records`` counts as one of ``told`` (predicted, and measured with a verdict), ``unpredicted`` (a
    verdict without a prediction), ``abstained`` (measured without a verdict) and ``unmeasured``. The other fields are
    over those ``told``, None if there are none. ``sign_right``: how many had the right sign of the saving.
    ``saving_error`` and ``step_error``: medians of the absolute errors, the first of verified savings. ``covered``: the
    share of savings between p10 and p90."""

    records: int
    told: int
    unpredicted: int
    abstained: int
    unmeasured: int
    sign_right: int
    saving_error: float | None
    step_error: float | None
    covered: float | None


def append(path: Path, record: Record) -> None:
    """Append a record as one whole line, also while other processes append. Raises UsageError."""
    import msgspec

    line = msgspec.json.encode(record)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a+b", buffering=0) as file:
            with contextlib.suppress(ImportError):  # Windows has no fcntl: there only a single write protects a line
                import fcntl

                fcntl.flock(file, fcntl.LOCK_EX)  # closing the file releases it
            if file.seek(0, os.SEEK_END):
                file.seek(-1, os.SEEK_END)
                if file.read(1) != b"\n":  # a process died while it wrote: its half line must not spoil this one
                    line = b"\n" + line
            file.write(line + b"\n")
    except OSError as error:
        raise UsageError(f"{path}: cannot be written ({error.strerror})", "choose another --ledger") from None


def read(path: Path) -> list[Record]:
    """Return all records, the oldest first. Raises SourceError, with the line, for a file that is no ledger."""
    import msgspec

    try:
        lines = path.read_bytes().splitlines()
    except OSError as error:
        raise SourceError(
            f"{path}: cannot be read ({error.strerror})", "perfkit verify --ledger FILE writes one"
        ) from None
    records = []
    for number, line in enumerate(lines, start=1):
        try:
            records += [msgspec.json.decode(line, type=Record)] if line.strip() else []
        except msgspec.MsgspecError as error:
            raise SourceError(f"{path}, line {number}: not a ledger record ({error})", "remove the line") from None
    return records


def summary(records: Sequence[Record]) -> Summary:
    told = [record for record in records if record.told]
    outcomes = Counter(record.outcome for record in records)
    right = [
        record.outcome == ("verified" if (record.predicted_saving_ratio or 0) > 0 else "refuted") for record in told
    ]
    covered = [_is_covered(record) for record in told]
    return Summary(
        records=len(records),
        told=len(told),
        unpredicted=outcomes["verified"] + outcomes["refuted"] - len(told),
        abstained=outcomes["abstained"],
        unmeasured=outcomes["predicted"],
        sign_right=sum(right),
        saving_error=_median([record.saving_error for record in told if record.outcome == "verified"]),
        step_error=_median([record.step_error for record in told]),
        covered=float(np.mean(covered)) if told else None,
    )


def _is_covered(record: Record) -> bool:
    low, high = record.predicted_low_ratio, record.predicted_high_ratio
    return low is not None and high is not None and low <= (record.saving_ratio or 0) <= high


def _median(errors: Sequence[float | None]) -> float | None:
    known = [abs(error) for error in errors if error is not None]
    return float(np.median(known)) if known else None
