"""perfkit export: the file, the messages on stderr, and one-line errors."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import perfkit_core
from perfkit_core.trace.model.trace import with_rank
from perfkit_core.trace.storage.store import write_cycle
from tests.support.ranks import collective, rank
from tests.support.small_trace import small_trace


def test_the_name_of_the_file_is_enough(perfkit, run: Path, tmp_path: Path) -> None:
    path = tmp_path / "trace.json.gz"
    code, out, err = perfkit("export", run, "-o", path)
    assert (code, out) == (0, "")
    assert err == f"wrote {path} (timeline for Perfetto and chrome://tracing)\n"
    assert perfkit_core.load(path).events.to_pylist() == small_trace().events.to_pylist()


@pytest.mark.parametrize("name", ["chrome", "folded", "speedscope", "pprof", "csv", "parquet"])
def test_every_format_by_its_name(perfkit, run: Path, tmp_path: Path, name: str) -> None:
    code, _, err = perfkit("export", run, "--to", name, "-o", tmp_path / "file")
    assert (code, err.count("\n")) == (0, 1)
    perfkit_core.export(perfkit_core.load([run]), tmp_path / "same", name)
    assert (tmp_path / "file").read_bytes() == (tmp_path / "same").read_bytes()


def test_several_sources_are_the_ranks_of_one_timeline(perfkit, run: Path, tmp_path: Path) -> None:
    write_cycle(with_rank(small_trace(), 1), tmp_path / "other")
    perfkit("export", run, tmp_path / "other", "-o", tmp_path / "t.json")
    assert perfkit_core.load(tmp_path / "t.json").meta.ranks == (0, 1)


def test_ranks_on_one_clock(perfkit, tmp_path: Path) -> None:
    """The clock of the second rank is 1000 ns ahead, so its kernel ends at 1300 ns. After alignment it ends at 300 ns,
    like the kernel of the first rank."""
    write_cycle(rank(0, collective(100, 300)), tmp_path / "run")
    write_cycle(rank(1, collective(250, 300), clock=1000), tmp_path / "run")
    for options, expected in ((), [300, 1300]), (("--align",), [300, 300]):
        code, _, err = perfkit("export", tmp_path / "run", "-o", tmp_path / "t.json", *options)
        assert (code, "clocks are aligned with the clock of rank 0" in err) == (0, bool(options))
        found = perfkit_core.load(tmp_path / "t.json")
        assert found.end_ns[found.rows("kind", "kernel")].tolist() == expected
    perfkit_core.export(perfkit_core.load(tmp_path / "run"), tmp_path / "same.json", align=True)
    assert (tmp_path / "same.json").read_bytes() == (tmp_path / "t.json").read_bytes()


def test_weight_and_step(perfkit, run: Path, tmp_path: Path) -> None:
    path = tmp_path / "t.folded"
    perfkit("export", run, "-o", path, "--weight", "device", "--step", "1")
    assert sum(int(line.rsplit(" ", 1)[1]) for line in path.read_text(encoding="utf-8").splitlines()) == 3_002_000


def test_missing_data_is_reported(perfkit, run: Path, tmp_path: Path) -> None:
    code, _, err = perfkit("export", run, "-o", tmp_path / "t.folded", "--weight", "bytes")
    assert code == 0
    assert err.startswith("note: no memory events were recorded")


def test_to_a_pipe(run: Path) -> None:
    command = [sys.executable, "-m", "perfkit", "export", str(run), "--to"]
    done = subprocess.run([*command, "folded"], capture_output=True, encoding="utf-8")
    assert (done.returncode, done.stderr) == (0, "")
    assert ";step;label;fw::matmul " in done.stdout
    table = subprocess.run([*command, "parquet"], capture_output=True)
    assert table.stdout.startswith(b"PAR1")
    assert table.stdout.endswith(b"PAR1")


def test_a_mistake_is_one_line_and_no_file(transcript, run: Path, tmp_path: Path) -> None:
    (stored,) = run.glob("*.perfkit.parquet")
    stored.rename(run / "cycle.perfkit.parquet")
    (tmp_path / "traces").mkdir()
    (tmp_path / "traces" / "rank0.json").write_text('{"traceEvents":[]}', encoding="utf-8")
    before = set(tmp_path.iterdir())
    options = ["", "-o x", "--to nope -o x", "-o x.csv --weight cpu", "-o x.folded --weight kg", "-o x.json --step 9"]
    options += ["-o x.json --step no", "-o /proc/nowhere/x.json"]
    streamed = [f"export {name} -o out.perfkit.parquet --stream" for name in ("run/cycle.perfkit.parquet", "traces")]
    transcript("export-mistakes", *(f"export run {option}" for option in options), *streamed)
    assert set(tmp_path.iterdir()) == before


def test_partial_reads_a_damaged_file(perfkit, run: Path, tmp_path: Path) -> None:
    whole = tmp_path / "whole.json"
    perfkit("export", run, "-o", whole)
    (tmp_path / "cut.json").write_bytes(whole.read_bytes()[:-1500])
    assert perfkit("export", tmp_path / "cut.json", "-o", tmp_path / "a.json").code == 2
    assert perfkit("export", tmp_path / "cut.json", "-o", tmp_path / "a.json", "--partial").code == 0
    rows = [e for e in json.loads((tmp_path / "a.json").read_bytes())["traceEvents"] if e["ph"] == "X"]
    assert 0 < len(rows) < len(small_trace())
