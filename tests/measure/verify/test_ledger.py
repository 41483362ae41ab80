"""Tests of the ledger: complete lines from several processes, and the summary."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from perfkit_core.errors import SourceError, UsageError
from perfkit_core.measure.verify.ledger import Record, append, read, summary


def record(outcome: Any = "verified", saving: float | None = 0.25, **more: Any) -> Record:
    """Return a record. By default, a saving of 20 % was predicted, with an interval from 10 to 30 %, and 25 % was
    measured."""
    numbers = {"base_ns": 1000, "p10_ns": 700, "p50_ns": 800, "p90_ns": 900}
    known: dict[str, Any] = {"date": "2024-01-01T00:00:00+00:00", "base": "a", "change": "b", **numbers}
    return Record(**(known | {"outcome": outcome, "saving_ratio": saving} | more))


def test_what_is_appended_is_read(tmp_path: Path) -> None:
    path = tmp_path / "new" / "ledger.jsonl"
    records = [record(threads={"OMP_NUM_THREADS": "2"}, cpus=(0, 1)), record("abstained", base="naïve 'x' \n y")]
    for one in records:
        append(path, one)
    assert read(path) == [record(threads={"OMP_NUM_THREADS": "2"}, cpus=[0, 1]), records[1]]
    assert len(path.read_text(encoding="utf-8").splitlines()) == 2


WRITER = """
import sys
from pathlib import Path
from perfkit_core.measure.verify.ledger import Record, append
for number in range(60):
    append(Path(sys.argv[1]), Record(date=sys.argv[2], outcome="abstained", base=str(number) * 3000, change="b"))
"""


def test_two_processes_append_whole_lines(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    writers = [subprocess.Popen([sys.executable, "-c", WRITER, str(path), name]) for name in ("one", "two")]
    assert [writer.wait() for writer in writers] == [0, 0]
    found = read(path)
    for name in ("one", "two"):
        assert [one.base for one in found if one.date == name] == [str(number) * 3000 for number in range(60)]


def test_a_byte_that_is_no_text_is_an_error_with_the_line(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    append(path, record())
    path.write_bytes(path.read_bytes() + b'{"date": "\xff"}\n')
    with pytest.raises(SourceError, match=r"ledger\.jsonl, line 2: not a ledger record"):
        read(path)


def test_a_line_that_was_cut_off_spoils_no_other(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    path.write_text('{"date": "2024', encoding="utf-8")
    append(path, record())
    lines = path.read_text(encoding="utf-8").splitlines()
    assert len(lines) == 2
    with pytest.raises(SourceError, match=r"ledger\.jsonl, line 1: not a ledger record"):
        read(path)
    path.write_text("\n" + lines[1] + "\n", encoding="utf-8")
    assert read(path) == [record()]


def test_a_newer_ledger_can_be_read(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    line = '{"date": "d", "outcome": "refuted", "base": "a", "change": "b", "of_tomorrow": 1}'
    path.write_text(line + "\n", encoding="utf-8")
    assert read(path) == [Record(date="d", outcome="refuted", base="a", change="b")]


def test_what_cannot_be_read_or_written(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="No such file"):
        read(tmp_path / "none.jsonl")
    with pytest.raises(UsageError, match="cannot be written"):
        append(tmp_path, record())


def test_the_summary_by_hand() -> None:
    """Five records have a prediction and a verdict. The sign was right in three of them, and the predicted interval
    contains the measured saving in two."""
    worse = {"base_ns": 1000, "p10_ns": 1100, "p50_ns": 1200, "p90_ns": 1300}
    records = [
        record(saving=0.25, saving_error=-0.2, step_error=0.07),
        record(saving=0.16, saving_error=0.25, step_error=-0.05),
        record(saving=0.40, saving_error=-0.5, step_error=0.33),
        record("refuted", saving=-0.1, saving_error=3.0, step_error=-0.27),
        record("verified", saving=0.1, saving_error=-3.0, step_error=0.33, **worse),
        record("abstained", saving=0.01, saving_error=19.0, step_error=-0.2),
        record("verified", base_ns=None, p10_ns=None, p50_ns=None, p90_ns=None),
        record("predicted", saving=None),
    ]
    found = summary(records)
    assert (found.records, found.judged, found.unpredicted, found.abstained, found.unmeasured) == (8, 5, 1, 1, 1)
    assert found.sign_right == 3
    assert found.saving_error == pytest.approx(0.375)  # the median of 0.2, 0.25, 0.5 and 3
    assert found.step_error == pytest.approx(0.27)  # the median of 0.07, 0.05, 0.33, 0.27 and 0.33
    assert found.covered == pytest.approx(0.4)


def test_a_loss_that_was_predicted_is_the_right_sign() -> None:
    worse = {"base_ns": 1000, "p10_ns": 1100, "p50_ns": 1200, "p90_ns": 1300}
    found = summary([record("refuted", saving=-0.2, **worse)])
    assert (found.judged, found.sign_right, found.covered) == (1, 1, 1)


def test_without_judged_records_there_are_no_errors() -> None:
    found = summary([record("abstained")])
    assert (found.judged, found.saving_error, found.step_error, found.covered) == (0, None, None, None)


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="root may write everywhere")
def test_a_ledger_that_may_not_be_written(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    path.touch(0o444)
    with pytest.raises(UsageError, match="Permission denied"):
        append(path, record())
