"""perfkit summary and report for many ranks: folders, workers, shards and partials. The outputs
of mistakes are in ``tests/golden/cli``."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import msgspec
import pandas as pd
import pytest

from perfkit_core.api import summarize
from perfkit_core.errors import SourceError, UsageError
from perfkit_core.ranks import files, profile
from perfkit_core.readers.load import load
from perfkit_core.trace.storage.store import write_cycle
from tests.support import chrome
from tests.support.events import host, trace

DEFAULT = ("--view", "causes,model,operators")
"""The views that partial results contain by default. Only a summary of recordings begins with a verdict."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with three ranks. Each rank has a step of 20 µs with an operator of 10 µs."""
    where = tmp_path / "run"
    where.mkdir()
    for rank in range(3):
        events = [
            chrome.event("ProfilerStep#1", 0, 20, cat="user_annotation"),
            chrome.event("aten::mm", 5, 10, args={"Input Dims": [[rank, 1]]}),
        ]
        place = {"backend": "nccl", "rank": rank, "world_size": 3}
        chrome.write(where / f"host_{rank}.json", events, distributedInfo=place)
    return where


def shares(perfkit, folder: Path, *options: str, count: int = 2, verb: str = "summary") -> list[Path]:
    found = [folder.parent / f"share-{number}.perfkit.partial" for number in range(1, count + 1)]
    for number, path in enumerate(found, 1):
        code, out, err = perfkit(verb, folder, "--shard", f"{number}/{count}", "-o", path, *options)
        empty = f": shard {number}/{count} is empty, because there are only 3 ranks" if number > 3 else ""
        assert (code, out, err) == (0, "", f"wrote {path}{empty}\n")
    return found


def test_a_folder_of_ranks_is_a_source(perfkit, folder: Path) -> None:
    content = json.loads(perfkit("summary", folder, "--view", "operators,steps", "--format", "json").out)
    assert content["source"] == str(folder)
    (mm,) = content["views"]["operators"]
    assert (mm["calls"], mm["total_cpu_ns"], mm["self_cpu_ratio"]) == (3, 30_000, 1)
    assert [row["rank"] for row in content["views"]["steps"]] == [0, 1, 2]
    assert "ranks 0–2 of 3" in perfkit("summary", folder).out


def test_workers_change_nothing_but_the_time(perfkit, folder: Path) -> None:
    assert perfkit("summary", folder, "--workers", "2") == perfkit("summary", folder)


def test_shards_merge_to_the_output_of_one_command(perfkit, folder: Path) -> None:
    """Shards determine the views and the counted events. Options that only change the display are applied when the
    partials are merged."""
    asked = ("--view", "operators,steps", "--by", "shape")
    found = shares(perfkit, folder, *asked)
    for shown in ((), ("--sort", "calls", "--limit", "1"), ("--format", "json")):
        assert perfkit("summary", *found, *shown) == perfkit("summary", folder, *asked, *shown)


def test_shards_show_all_their_views(perfkit, folder: Path) -> None:
    """The command shows all views in the partials, even if the default views are among them."""
    asked = ("--view", "steps,partition,model,operators,ranks")
    assert perfkit("summary", *shares(perfkit, folder, *asked)) == perfkit("summary", folder, *asked)


def test_a_shard_made_again_with_partial_joins_the_others(perfkit, folder: Path) -> None:
    found = shares(perfkit, folder)
    wanted = perfkit("summary", *found)
    assert perfkit("summary", folder, "--shard", "2/2", "--partial", "-o", found[1]).code == 0
    assert perfkit("summary", *found) == perfkit("summary", *found[::-1]) == wanted


def test_workers_of_a_cluster_get_absolute_paths(perfkit, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers run in other folders, so they get absolute paths. Addresses of stores are not changed."""
    named: list[object] = []

    def plan(sources: list[object], partial: bool) -> object:
        named.extend(sources)
        raise UsageError("no cluster here")

    monkeypatch.setattr(profile, "plan", plan)
    monkeypatch.chdir(folder.parent)
    assert perfkit("summary", folder.name, "memory://run", "--scheduler", "tcp://x:1").code == 2
    with pytest.raises(UsageError, match="no cluster here"):
        summarize(folder.name, "operators", scheduler="tcp://x:1")
    assert [str(place) for place in named] == [str(folder), "memory://run", str(folder)]


def test_shards_of_version_8_are_read(perfkit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their copies have a column ``told_ns``."""
    copies = [
        chrome.event("ProfilerStep#1", 0, 90, cat="user_annotation"),
        chrome.event("Memcpy HtoD", 5, 10, cat="gpu_memcpy", args={"bytes": 4000, "device": 0, "stream": 7}),
    ]
    (tmp_path / "run").mkdir()
    for rank in range(2):
        chrome.write(tmp_path / "run" / f"host_{rank}.json", copies, distributedInfo={"rank": rank, "world_size": 2})
    found = shares(perfkit, tmp_path / "run", "--view", "memcpy")
    expected = perfkit("summary", *found, "--view", "memcpy", "--format", "json")
    assert '"bytes_per_s":400000000' in expected.out.replace(" ", "")
    current = files.to_extension

    def before(value: object) -> object:
        return current(value.rename(columns={"sized_ns": "told_ns"}) if isinstance(value, pd.DataFrame) else value)

    for path in found:
        stored = files.read_all([path], partial=True)
        with monkeypatch.context() as patch:
            patch.setattr(files, "to_extension", before)
            files.write(msgspec.structs.replace(stored, version=8, findings=()), path)
        assert b"told_ns" in path.read_bytes()
    assert perfkit("summary", *found, "--view", "memcpy", "--format", "json") == expected


def test_averages_over_steps_are_merged_from_shards(perfkit, folder: Path) -> None:
    for file in folder.iterdir():
        content = json.loads(file.read_bytes())
        content["traceEvents"].append(chrome.event("ProfilerStep#2", 30, 20, cat="user_annotation"))
        content["traceEvents"].append(chrome.event("aten::mm", 35, 10))
        file.write_text(json.dumps(content), encoding="utf-8")
    found = shares(perfkit, folder, "--average")
    whole = perfkit("summary", folder, "--average", "--format", "json")
    assert perfkit("summary", *found, "--average", "--format", "json") == whole
    assert perfkit("summary", *found, "--format", "json") == whole  # the partials already contain averages
    averages = summarize(folder, "operators", average=True)
    pd.testing.assert_frame_equal(summarize(found, "operators"), averages)
    assert perfkit("summary", folder, "--format", "json") != whole


def test_unreadable_ranks_of_all_shards_are_reported_together(perfkit, folder: Path) -> None:
    (folder / "host_1.json").write_bytes(b"")
    found = shares(perfkit, folder, "--partial", count=3)  # the second shard has no readable rank
    assert perfkit("summary", *found) == perfkit("summary", folder, *DEFAULT, "--partial")
    assert "1 of 3 ranks could not be read" in perfkit("summary", *found).out


def test_a_page_leaves_out_a_rank_that_cannot_be_read(perfkit, folder: Path, tmp_path: Path) -> None:
    (folder / "host_1.json").write_bytes(b"")
    assert perfkit("report", folder, "-o", tmp_path / "x.html").code == 2
    assert perfkit("report", folder, "--partial", "-o", tmp_path / "x.html").code == 0
    assert "1 of 3 files could not be read" in (tmp_path / "x.html").read_text(encoding="utf-8")


def test_a_page_is_made_from_shards(perfkit, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("perfkit_core.api.TOGETHER_BYTES", 0)
    found = shares(perfkit, folder, verb="report")
    pages = []
    for sources in (found, [folder]):
        assert perfkit("report", *sources, "-o", tmp_path / "page.html").code == 0
        pages.append((tmp_path / "page.html").read_text(encoding="utf-8"))
    assert pages[0] == pages[1]
    assert perfkit("summary", *found, "--view", "steps").out == perfkit("summary", folder, "--view", "steps").out


def test_a_page_of_small_ranks_reads_them_together(perfkit, folder: Path, tmp_path: Path, monkeypatch) -> None:
    apart, size = "ranks one by one", sum(path.stat().st_size for path in folder.iterdir())
    for limit, expected in ((size, False), (size - 1, True)):
        monkeypatch.setattr("perfkit_core.api.TOGETHER_BYTES", limit)
        assert perfkit("report", folder, "-o", tmp_path / "page.html").code == 0
        page = (tmp_path / "page.html").read_text(encoding="utf-8")
        assert (apart in page, 'class="timeline"' not in page) == (expected, expected)
        assert "<title>Profile of run</title>" in page


def test_with_more_shards_than_ranks_some_are_empty(perfkit, folder: Path) -> None:
    assert perfkit("summary", *shares(perfkit, folder, count=4)) == perfkit("summary", folder, *DEFAULT)


def test_mistakes_are_one_line(transcript, perfkit, folder: Path) -> None:
    """Shards answer only the request that they were made for, and do not mix with those of other profiles or
    commands."""
    lines = [f"summary run --shard {shard} -o x.perfkit.partial" for shard in ("3/2", "0/2", "1")]
    lines += ["summary run --shard 1/2", "summary run --shard 1/2 -o x.csv"]
    lines += ["summary run --workers 2 --scheduler tcp://x:1"]
    first, second = shares(perfkit, folder, "--view", "operators")
    both, where = f"{first.name} {second.name}", folder.parent
    lines += [f"summary {both} {options}" for options in ("--view kernels", "--by shape", "--average")]
    lines += [f"report {both} -o page.html", f"compare {first.name} run", f"export {first.name} -o x.json"]
    lines += [f"summary {first.name}", f"summary {first.name} --partial", f"summary {first.name} run"]
    shutil.copy(first, where / "again.perfkit.partial")
    shutil.copytree(folder, where / "others")
    for name, options in (("by", "--by shape"), ("other", "")):
        source = "others" if name == "other" else "run"
        arguments = ("--view", "operators", "--shard", "2/2", *options.split())
        assert perfkit("summary", where / source, *arguments, "-o", where / f"{name}.perfkit.partial").code == 0
    lines += [f"summary {first.name} {name}.perfkit.partial" for name in ("again", "by", "other")]
    (where / "others" / "host_1.json").write_bytes(b"")
    lines += ["summary others", "summary others --partial --view findings"]
    (where / "empty").mkdir()
    for rank in (0, 1):
        (where / "empty" / f"host_{rank}.json").write_bytes(b"")
    for number in (1, 2):
        partial = ("--shard", f"{number}/2", "--partial", "-o", where / f"none-{number}.perfkit.partial")
        assert perfkit("summary", where / "empty", *partial).code == 0
    lines += ["summary empty --partial", "summary none-1.perfkit.partial none-2.perfkit.partial"]
    transcript("ranks-mistakes", *lines)


def test_a_damaged_file_of_partials_is_a_source_error(perfkit, folder: Path, tmp_path: Path) -> None:
    """A file that is truncated, or in which one byte is changed."""
    (path,) = shares(perfkit, folder, count=1)
    whole = path.read_bytes()
    damaged = tmp_path / "damaged.perfkit.partial"
    for at in range(0, len(whole), max(1, len(whole) // 60)):
        for content in (whole[:at], whole[:at] + bytes([whole[at] ^ 0xFF]) + whole[at + 1 :]):
            damaged.write_bytes(content)
            with pytest.raises(SourceError):
                files.read_all([damaged], partial=False)


def test_recorded_cycles_of_one_process_go_through_every_command(perfkit, tmp_path: Path) -> None:
    """The handler wrote two cycles of a process without a rank from a launcher."""
    for cycle in (0, 1):
        made = trace([host("step", "step", cycle * 1000, 100, step=cycle), host("op", "operator", cycle * 1000, 10)])
        told = {"source": "live", "clock": "epoch", "window_ns": (cycle * 1000, cycle * 1000 + 100)}
        write_cycle(made.with_meta(**told, ranks=(), recording="1-a", cycle=cycle), tmp_path / "run")
    shown = perfkit("summary", tmp_path / "run")
    assert (shown.code, shown.err) == (0, "")
    assert perfkit("summary", tmp_path / "run", "--workers", "2") == shown
    (share,) = shares(perfkit, tmp_path / "run", count=1)
    assert perfkit("summary", share) == perfkit("summary", tmp_path / "run", *DEFAULT)
    assert perfkit("report", tmp_path / "run", "-o", tmp_path / "page.html").code == 0


def test_communication_with_and_without_device_work_adds_up(perfkit, tmp_path: Path) -> None:
    call = chrome.event("c10d::allreduce_", 0, 8)
    chrome.write(tmp_path / "rank0.json", [call, chrome.event("aten::mm", 10, 4)])
    work = chrome.event("gemm", 2, 5, cat="kernel", args={"device": 0, "stream": 7, "correlation": 1})
    chrome.write(tmp_path / "rank1.json", [call, chrome.event("aten::mm", 10, 4), work])
    rows = json.loads(perfkit("summary", tmp_path, "--view", "distributed", "--format", "json").out)
    (computed,) = (row for row in rows["views"]["distributed"] if row["part"] == "computation")
    assert (computed["host_calls"], computed["device_calls"], computed["time_ns"]) == (1, 1, 4_000 + 5_000)


def test_findings_of_a_file_of_many_ranks_are_kept(perfkit, folder: Path, tmp_path: Path) -> None:
    assert perfkit("export", folder, "-o", tmp_path / "all.json").code == 0
    whole = load(tmp_path / "all.json")
    content = json.loads(perfkit("summary", tmp_path / "all.json", "--format", "json").out)
    assert [found["message"] for found in content["quality"]] == [found.message for found in whole.quality]


def test_an_unreadable_rank_is_left_out_and_a_damaged_one_is_cut(perfkit, folder: Path) -> None:
    whole = (folder / "host_1.json").read_bytes()
    (folder / "host_1.json").write_bytes(whole.removesuffix(b"]}") + b', {"ph": "X", "name": "aten::a')
    (folder / "host_2.json").write_bytes(b"")
    assert perfkit("summary", folder).code == 2
    content = json.loads(perfkit("summary", folder, "--partial", "--view", "steps", "--format", "json").out)
    assert [row["rank"] for row in content["views"]["steps"]] == [0, 1]
    assert {"truncated", "ranks-left-out"} <= {found["code"] for found in content["quality"]}
