"""Tests of folders of trace files: which files are read, which are left out and reported, and which raise an error."""

from __future__ import annotations

from pathlib import Path

import pytest

from perfkit_core.compare.report import comparison_report
from perfkit_core.errors import SourceError
from perfkit_core.ranks.profile import opened
from perfkit_core.readers.load import load
from perfkit_core.readers.trace_folder import once
from tests.support import chrome
from tests.support.paths import DATA


def profile(path: Path, rank: int | None = None) -> Path:
    place = {} if rank is None else {"distributedInfo": {"backend": "nccl", "rank": rank}}
    return chrome.write(path, [chrome.event("aten::mm", 0, 10)], **place)


def told(folder: Path, code: str) -> list[str]:
    return [finding.message for finding in load(folder, partial=True).quality if finding.code == code]


def test_one_recording_in_two_formats_is_read_once(tmp_path: Path) -> None:
    for name in ("cycle0.json", "cycle0.json.gz", "cycle1.json"):
        profile(tmp_path / name)
    found = load(tmp_path)
    assert found.meta.ranks == (0, 1)
    (message,) = (finding.message for finding in found.quality if finding.code == "formats-left-out")
    reason = "because its recording also exists in another format"
    assert message == f"1 file in {tmp_path} was left out, {reason}: cycle0.json.gz"


def test_the_exact_format_is_preferred() -> None:
    names = ("a.json", "a.json.gz", "a.pb.gz", "b.json.gz", "b.json", "c.PB", "c.json")
    assert [path.name for path in once(map(Path, names))] == ["a.pb.gz", "b.json", "c.PB"]


def test_the_exact_format_of_a_real_recording_is_read(tmp_path: Path) -> None:
    data = DATA
    for name in ("paddle-mlp.pb", "paddle-mlp.json.gz"):
        (tmp_path / name).write_bytes((data / name).read_bytes())
    found = load(tmp_path)
    assert found.events.to_pylist() == load(data / "paddle-mlp.pb").events.to_pylist()
    assert "formats-left-out" in {finding.code for finding in found.quality}


@pytest.mark.parametrize("content", [b"{}", b"garbage", b'{"lr": 1}'])
@pytest.mark.parametrize(
    ("profiles", "missing"),
    [
        (("rank0.json", "rank1.json"), "rank3.json"),
        (("trace_a.json", "trace_b.json"), "rank3.json.gz"),
        (("host_10.json", "host_11.json"), "host_12.json"),
        (("rank0_cycle0.json", "rank0_cycle1.json"), "rank0_cycle2.json"),
    ],
)
def test_a_file_named_like_a_rank_that_is_no_profile_is_refused(
    tmp_path: Path, content: bytes, profiles: tuple[str, ...], missing: str
) -> None:
    for name in profiles:
        profile(tmp_path / name)
    chrome.raw(tmp_path / missing, content)
    for read in (load, lambda folder: opened([folder])):
        with pytest.raises(SourceError, match="the file is named like the other profiles") as caught:
            read(tmp_path)
        assert str(tmp_path / missing) in caught.value.message
    assert told(tmp_path, "files-left-out") == [f"1 file in {tmp_path} is not a profile and was left out: {missing}"]


@pytest.mark.parametrize("other", ["config.json", "rank0_memory.json", "memory-rank1.json", "flops.json.gz"])
def test_other_files_beside_all_ranks_are_left_out(tmp_path: Path, other: str) -> None:
    for rank in (0, 1):
        profile(tmp_path / f"rank{rank}.json", rank)
    chrome.raw(tmp_path / other, b"{}")
    found = load(tmp_path)
    assert found.meta.ranks == (0, 1)
    message = f"1 file in {tmp_path} is not a profile and was left out: {other}"
    assert ("files-left-out", message) in [(finding.code, finding.message) for finding in found.quality]


def test_a_folder_of_run_folders_names_them(tmp_path: Path) -> None:
    for name in ("old", "new"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "x.perfkit.parquet").write_bytes(b"")
    with pytest.raises(SourceError) as caught:
        load(tmp_path)
    assert caught.value.message.endswith("but in new, old")
    assert f"perfkit runs {tmp_path}" in caught.value.hint


def test_an_empty_folder_names_the_readable_formats(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"no recordings \(\*\.perfkit\.parquet\) and no trace files \(\.json, "):
        load(tmp_path)


def test_a_trace_from_a_folder_has_the_name_of_the_folder(tmp_path: Path) -> None:
    files = [profile(tmp_path / f"rank{rank}.json", rank) for rank in range(2)]
    assert load(tmp_path).meta.source == str(tmp_path)
    assert load(files).meta.source == str(files[0])
    assert comparison_report(load(tmp_path), load(tmp_path)).title == f"{tmp_path.name} against itself"
