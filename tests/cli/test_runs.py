"""perfkit runs lists the numbers of each run and the errors of damaged runs. The newest run comes first."""

from __future__ import annotations

import csv
import io
import json
import os
import re
from pathlib import Path
from urllib.parse import unquote

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import perfkit_core
from perfkit_core.cli.main import main
from perfkit_core.errors import SourceError
from perfkit_core.trace.model.meta import Finding
from perfkit_core.trace.model.schema import STEP
from perfkit_core.trace.model.trace import Trace, with_rank
from perfkit_core.trace.storage.store import SUFFIX, write_cycle, write_trace
from tests.support.chrome import event, write
from tests.support.paths import DATA
from tests.support.small_trace import small_trace

DAY_NS = 86_400 * 10**9


def cycle(number: int, rank: int = 0, **meta: object) -> Trace:
    found = with_rank(small_trace(), rank)
    return found.with_meta(cycle=number, **meta)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with two ranks of two cycles, a newer run, a Parquet file, a trace file, a damaged run and other
    files."""
    root = tmp_path / "runs"
    for rank in (0, 1):
        for number in (0, 1):
            write_cycle(cycle(number, rank, recording=f"r{rank}"), root / "old")
    new = small_trace().meta.recorded_at_ns + DAY_NS
    write_cycle(cycle(0, recorded_at_ns=new, recording="n"), root / "deep" / "new")
    write_trace(cycle(0, recorded_at_ns=new - 1), root / "kept.parquet")
    write(root / "trace.json", [event("aten::add", 1, 5), event("ProfilerStep#3", 0, 8, cat="user_annotation")])
    (root / "broken").mkdir()
    (root / "broken" / f"rank00000{SUFFIX}").write_bytes(b"PAR1 no")
    (root / "notes.txt").write_text("nothing")
    (root / "settings.json").write_text("{}")
    pq.write_table(pa.table({"a": [1]}), root / "data.parquet")
    (root / ".hidden").mkdir()
    write_cycle(cycle(0), root / ".hidden" / "run")
    return root


def by_path(table: pd.DataFrame, root: Path) -> dict[str, dict[str, object]]:
    return {str(Path(row["path"]).relative_to(root)): row for row in table.to_dict("records")}


def test_every_run_and_nothing_else_the_newest_first(folder: Path) -> None:
    table = perfkit_core.list_runs(folder)
    names = [str(Path(path).relative_to(folder)) for path in table["path"]]
    assert names == ["trace.json", "deep/new", "kept.parquet", "old", "broken"]
    assert table["recorded_at"].iloc[1] == pd.Timestamp("2023-11-15T22:13:20Z")


def test_figures_are_those_of_the_loaded_run(folder: Path) -> None:
    rows = by_path(perfkit_core.list_runs(folder), folder)
    for name in ("old", "deep/new", "kept.parquet"):
        loaded, row = perfkit_core.load(folder / name), rows[name]
        steps = loaded.rows("kind", STEP)
        assert row["events"] == len(loaded)
        assert row["findings"] == len(loaded.quality)
        assert row["ranks"] == len(loaded.meta.ranks)
        assert row["steps"] == len(set(loaded.ints("step")[steps].tolist()))
        assert row["median_step_ns"] == round(np.median(loaded.ints("dur_ns")[steps]) + 0.1)
        assert row["framework"] == "fw 1.2"
        assert row["devices"] == "Small GPU"
        assert pd.isna(row["error"])
    assert (rows["old"]["cycles"], rows["old"]["ranks"], rows["old"]["events"]) == (2, 2, 4 * len(small_trace()))
    assert rows["old"]["median_step_ns"] == 9_000_001  # the median of 9,000,000 and 9,000,001 is rounded up
    assert rows["old"]["file_bytes"] == sum(path.stat().st_size for path in (folder / "old").iterdir())


def test_steps_missing_in_the_last_cycle_are_no_finding_of_the_run(tmp_path: Path) -> None:
    """The run has no warning if the previous cycle of the same rank contains the missing steps. Otherwise it has the
    warning."""
    lacking = Finding("no-steps", "no training steps were recorded")
    for number in (0, 1):
        one = cycle(number, recording="r")
        write_cycle(one.with_findings(lacking) if number else one, tmp_path / "a")
        other = cycle(number, number, recording=f"r{number}")
        write_cycle(other.with_findings(lacking) if number else other, tmp_path / "b")
    rows = by_path(perfkit_core.list_runs(tmp_path), tmp_path)
    loaded = {name: perfkit_core.load(tmp_path / name).quality for name in ("a", "b")}
    assert {name: row["findings"] for name, row in rows.items()} == {name: len(one) for name, one in loaded.items()}
    assert [any(one.code == "no-steps" for one in loaded[name]) for name in ("a", "b")] == [False, True]


def test_findings_of_all_ranks_together_count(tmp_path: Path) -> None:
    for rank, world in ((0, 3), (1, 4)):
        write_cycle(cycle(0, rank, recording=f"r{rank}", world_size=world), tmp_path / "a")
    (row,) = perfkit_core.list_runs(tmp_path).to_dict("records")
    loaded = perfkit_core.load(tmp_path / "a").quality
    assert {"ranks-missing", "jobs-mixed"} <= {one.code for one in loaded}
    assert row["findings"] == len(loaded)


def test_trace_files_are_read_on_request_only(folder: Path) -> None:
    unread = by_path(perfkit_core.list_runs(folder), folder)["trace.json"]
    assert unread["format"] == "torch"
    assert unread["file_bytes"] == (folder / "trace.json").stat().st_size
    assert all(pd.isna(unread[name]) for name in ("framework", "events", "steps", "median_step_ns", "findings"))
    read = by_path(perfkit_core.list_runs(folder, read_files=True), folder)["trace.json"]
    assert (read["framework"], read["events"], read["steps"], read["median_step_ns"]) == ("torch", 2, 1, 8000)


def test_a_broken_run_says_why_and_a_damaged_file_too(folder: Path) -> None:
    (folder / "trace.json").write_bytes((folder / "trace.json").read_bytes()[:-20])
    rows = by_path(perfkit_core.list_runs(folder, read_files=True), folder)
    assert "not a readable Parquet file" in str(rows["broken"]["error"])
    assert "--partial" in str(rows["trace.json"]["error"])


def test_older_recordings_in_a_folder_are_left_out(folder: Path) -> None:
    later = small_trace().meta.recorded_at_ns + DAY_NS
    window = (later, later + 10**9)
    write_cycle(cycle(0, recording="again", recorded_at_ns=later, window_ns=window), folder / "old")
    row = by_path(perfkit_core.list_runs(folder), folder)["old"]
    loaded = perfkit_core.load(folder / "old")
    assert (row["events"], row["findings"]) == (len(loaded), len(loaded.quality))


def test_in_the_terminal(transcript, folder: Path) -> None:
    """The date of a run folder is the start of the recording. The date of an unread file is its modification time."""
    os.utime(folder / "trace.json", (2**31, 2**31))
    (folder / "empty").mkdir()
    transcript("runs", "runs .", "runs deep", "runs empty", "runs nowhere", "runs . --pages", folder=folder)


def test_for_machines(perfkit, folder: Path) -> None:
    content = json.loads(perfkit("runs", folder, "--format", "json").out)
    assert content["source"] == str(folder)
    rows = content["views"]["runs"]
    assert [row["recorded_at"] for row in rows][1] == "2023-11-15T22:13:20+00:00"
    assert rows[1]["median_step_ns"] == 9_000_001
    table = list(csv.DictReader(io.StringIO(perfkit("runs", folder, "--format", "csv").out)))
    assert [row["path"] for row in table] == [row["path"] for row in rows]
    assert len(json.loads(perfkit("runs", folder, "--format", "json", "--limit", "2").out)["views"]["runs"]) == 2


@pytest.mark.parametrize("form", ["text", "markdown", "html", "csv", "json"])
def test_a_name_that_is_not_utf8_is_listed_with_escapes(perfkit, tmp_path: Path, form: str) -> None:
    (tmp_path / "runs\udcfe").mkdir()
    write(tmp_path / "runs\udcfe" / "b\udcffd.json", [event("aten::add", 1, 5)])
    write(tmp_path / "runs\udcfe" / "c\udcff.json", [event("aten::add", 1, 5)]).write_text('{"schemaVersion": 1, "tr')
    write_cycle(cycle(0), tmp_path / "runs\udcfe" / "r\udcff")
    code, out, err = perfkit("runs", tmp_path / "runs\udcfe", "--read-files", "--format", form)
    assert (code, err) == (0, "")
    assert all(name in out.replace("\\\\", "\\") for name in ("b\\xffd.json", "c\\xff.json", "r\\xff"))


@pytest.mark.parametrize("to", ["t.parquet", "t.json"])
def test_a_name_that_is_not_utf8_is_kept_with_escapes(perfkit, tmp_path: Path, to: str) -> None:
    source = write(tmp_path / "b\udcffd.json", [event("aten::add", 1, 5)])
    streamed = ["--stream"] if to == "t.parquet" else []
    assert perfkit("export", source, "-o", tmp_path / to, *streamed).code == 0
    assert len(perfkit_core.load(tmp_path / to)) == 1
    assert perfkit_core.load(source).meta.source == str(tmp_path / "b\\xffd.json")


def test_a_folder_without_runs(tmp_path: Path) -> None:
    assert list(perfkit_core.list_runs(tmp_path)) == list(perfkit_core.list_runs(tmp_path.parent))
    with pytest.raises(SourceError, match="no such folder"):
        perfkit_core.list_runs(tmp_path / "nowhere")


def test_the_folder_may_be_a_run_itself(folder: Path) -> None:
    table = perfkit_core.list_runs(folder / "old")
    assert table["path"].tolist() == [str(folder / "old")]


@pytest.mark.parametrize("name", ["torch-mlp.json.gz", "paddle-mlp.json.gz", "paddle-mlp.pb"])
def test_exports_of_a_run_are_listed_only_if_readable(perfkit, tmp_path: Path, name: str) -> None:
    """Exported tables and flame graphs contain the operator names of the trace, but they are not traces."""
    run = DATA / name
    timelines = ["t.json", "t.json.gz", "t.parquet"]
    for file in (*timelines, "s.speedscope.json", "f.folded", "p.pb.gz", "e.csv"):
        assert perfkit("export", run, "-o", tmp_path / file).code == 0
    for file in ("all.json", "operators.csv", "all.md", "all.txt"):
        view = "operators" if file == "operators.csv" else "all"
        assert perfkit("summary", run, "--view", view, "-o", tmp_path / file).code == 0
    assert perfkit("compare", run, run, "-o", tmp_path / "compare.json").code == 0
    assert perfkit("report", run, "-o", tmp_path / "report.html").code == 0
    listed = [Path(path).name for path in perfkit_core.list_runs(tmp_path)["path"]]
    assert sorted(listed) == timelines
    for file in listed:
        assert len(perfkit_core.load(tmp_path / file)) == len(perfkit_core.load(run))


def test_a_list_links_to_the_page_of_each_run(perfkit, folder: Path, tmp_path: Path) -> None:
    listed = tmp_path / "out" / "list.html"
    code, _, err = perfkit("runs", folder, "--pages", "-o", listed)
    assert (code, err) == (0, f"wrote {listed}\n")
    addresses = re.findall(r'<td><a href="([^"]+)">Open</a></td>', listed.read_text(encoding="utf-8"))
    assert len(addresses) == 4, "the damaged run has no page"
    pages = [listed.parent / unquote(address) for address in addresses]
    assert [page.name for page in pages] == ["1-trace.json.html", "2-new.html", "3-kept.parquet.html", "4-old.html"]
    assert all("<h1><bdi>Profile of " in page.read_text(encoding="utf-8") for page in pages)


@pytest.mark.parametrize("address", ["http://127.0.0.1:9/x/", "https://127.0.0.1:9/x/"])
def test_a_server_that_does_not_answer_is_an_error(address: str, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("aiohttp", reason="fsspec needs aiohttp for the web")
    assert main(["runs", address]) == 2
    assert re.fullmatch(rf"perfkit: error: {address}: cannot be read \(.+\n", capsys.readouterr().err)


def test_suggested_commands_quote_names(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("a`touch x`.json", "b $(touch y).json"):
        write(tmp_path / name, [event("aten::add", 1, 5)])
    os.utime(tmp_path / name, (2**31, 2**31))
    assert main(["runs", str(tmp_path), "--format", "markdown"]) == 0
    text = capsys.readouterr().out.replace("\\", "")
    assert f"perfkit view '{tmp_path}/b $(touch y).json'" in text
    assert f"perfkit compare '{tmp_path}/a`touch x`.json' '{tmp_path}/b $(touch y).json'" in text
