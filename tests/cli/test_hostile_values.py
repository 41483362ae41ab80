"""No value in a file, an option or a variable ends a command with a traceback, or without limits: the command leaves
the value out, or ends with exit code 2 and one line."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from perfkit_core.measure.calibration import calibrate, equal_runs
from perfkit_core.measure.verify import ledger, prediction
from perfkit_core.ranks import files as partial_files
from perfkit_core.recording import environment
from perfkit_core.trace.storage.checksums import crc
from tests.support.chrome import event

DIGITS = "9" * 6000
DEEP = "[" * 100_000 + "]" * 100_000
LONG = json.dumps("x" * 1_000_000)
VALUES = {
    "digits": DIGITS, "deep": DEEP, "infinite": "1e999", "number": "5", "negative": "-1", "null": "null",
    "list": "[1]", "object": '{"a": 1}', "control": json.dumps("\x1b[31m\x00"), "surrogate": '"\\ud800"',
}  # fmt: skip
each_value = pytest.mark.parametrize("value", VALUES.values(), ids=VALUES.keys())


def _one_line(err: str) -> bool:
    """Return whether this is the line of an error that perfkit expects, without control characters."""
    return (
        err.startswith("perfkit: error: ") and "unexpected" not in err and err[-1:] == "\n" and err[:-1].isprintable()
    )


@pytest.fixture
def trace(tmp_path: Path) -> Callable[[str, str], Path]:
    """Return a function that writes a trace with members in its header and its footer."""

    def write(header: str = "", footer: str = "") -> Path:
        steps = [event(f"ProfilerStep#{step}", 100 * step, 90, cat="user_annotation") for step in range(3)]
        path = tmp_path / "trace.json"
        path.write_text(f'{{"schemaVersion": 1, {header} "traceEvents": {json.dumps(steps)} {footer}}}')
        return path

    return write


@each_value
@pytest.mark.parametrize("key", ["id", "name", "totalGlobalMem", "numSms", "computeMajor"])
def test_descriptions_of_devices(perfkit, trace: Any, key: str, value: str) -> None:
    code, out, err = perfkit("summary", trace(f'"deviceProperties": [{{"id": 0, "{key}": {value}}}],'))
    assert (code, err) == (0, "") or (code, out, _one_line(err)) == (2, "", True)


@each_value
@pytest.mark.parametrize("key", ["anything", "baseTimeNanoseconds", "distributedInfo", "deviceProperties"])
def test_headers_and_footers(perfkit, trace: Any, key: str, value: str) -> None:
    for path in (trace(f'"{key}": {value},'), trace("", f', "{key}": {value}')):
        code, out, err = perfkit("summary", path)
        assert (code, err) == (0, "") or (code, out, _one_line(err)) == (2, "", True)


@pytest.mark.parametrize(
    ("value", "reason"),
    [(DIGITS, "too many digits"), (DEEP, "nested too deep"), ("1\n" + "a." * 10_000 + "b = 1", "dots"),
     ("\udcff", "not UTF-8"), (f"1\n{LONG} = 1", "unknown field `xxx")],
    ids=["digits", "deep", "dots", "utf-8", "long"],
)  # fmt: skip
def test_files_of_peak_rates(perfkit, trace: Any, tmp_path: Path, value: str, reason: str) -> None:
    peaks = tmp_path / "peaks.toml"
    text = f"[[devices]]\nnames = ['cpu']\nsource = 'x'\nmemory_gb_per_s = {value}"
    peaks.write_text(text, errors="surrogateescape")
    code, out, err = perfkit("summary", trace(), "--peaks", peaks)
    assert (code, out, _one_line(err)) == (2, "", True)
    assert reason in err
    assert len(err) < 1000


@each_value
def test_ledgers_and_advice(tmp_path: Path, value: str) -> None:
    path = tmp_path / "advice.json"
    for text in (value, f'{{"advice": [{{"id": "a", "prediction": {value}}}]}}'):
        path.write_text(text)
        with pytest.raises(ledger.SourceError, match="line 1: not a ledger record"):
            ledger.read(path)
        with pytest.raises(prediction.UsageError):
            prediction.from_file(f"{path}:a")


@each_value
def test_calibrations_that_cannot_be_read_are_skipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    equal_runs.file().parent.mkdir(parents=True, exist_ok=True)
    equal_runs.file().write_text(f'{value}\n{{"date": {value}}}\n')
    calibrate.folder().mkdir(parents=True, exist_ok=True)
    (calibrate.folder() / "torch-1.json").write_text(value)
    assert equal_runs.stored() == []
    assert list(calibrate.stored("torch")) == []


def test_partial_results_that_are_nested_too_deep(tmp_path: Path) -> None:
    content = b"\x91" * 100_000 + b"\xc0"  # lists of one item in MessagePack
    path = tmp_path / "shard.perfkit.partial"
    path.write_bytes(content + crc(content).to_bytes(4, "little"))
    with pytest.raises(partial_files.SourceError, match="not a file of partial results"):
        partial_files.read_all([path], partial=False)


@pytest.mark.parametrize("value", [DEEP, DIGITS, "5"], ids=["deep", "digits", "number"])
def test_metadata_of_stored_runs(perfkit, run: Path, value: str) -> None:
    file = next(run.glob("*.parquet"))
    table = pq.read_table(file)
    metadata = {b"perfkit": f'{{"schema_version": 2, "unknown": {value}}}'.encode()}
    pq.write_table(table.replace_schema_metadata(metadata), file)
    code, out, err = perfkit("summary", run)
    assert (code, out, _one_line(err)) == (2, "", True)


@pytest.mark.parametrize("value", [DIGITS, "²", "-1", "", "\x1b[31m", "x" * 10_000])
@pytest.mark.parametrize(
    "arguments",
    [("--step",), ("--view", "operators", "--by", "stack={}"), ("--max-memory",), ("--limit",), ("--shard",)],
)
def test_options(perfkit, run: Path, arguments: tuple[str, ...], value: str) -> None:
    filled = [argument.replace("{}", value) for argument in arguments]
    code, out, err = perfkit("summary", run, *filled, *([] if "{}" in arguments[-1] else [value]))
    assert (code, out, _one_line(err)) == (2, "", True) or (value == "" and code == 0)
    assert len(err) < 4500


@pytest.mark.parametrize("command", ["capture", "summary", "runs", "verify --base true --change true --predicted-ns"])
@pytest.mark.parametrize("value", [DIGITS, "a\0b", "x" * 1_000_000, "\x1b[31m\n"])
def test_arguments(perfkit, command: str, value: str) -> None:
    code, out, err = perfkit(*command.split(), value)
    assert (code, out, _one_line(err)) == (2, "", True)
    assert len(err) < 4500


@pytest.mark.parametrize("value", [DIGITS, "²", "٣", "-1", "1e3", ""])
def test_variables_of_launchers_without_a_number(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    for name in ("RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE"):
        monkeypatch.setenv(name, value)
    assert environment.environment_rank() == environment.ProcessRank(None, None)
    assert environment.PROCESSES not in environment.host(None)[environment.HOST]
