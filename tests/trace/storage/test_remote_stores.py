"""Tests that sources, run folders and outputs may be in a store: tables are the same, and errors have one line."""

from __future__ import annotations

import gzip
import http.server
import logging
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest

import perfkit_core as perfkit
from perfkit_core.base.system import paths
from perfkit_core.base.system.paths import _kept_folder, replacing
from perfkit_core.cli.main import main
from perfkit_core.errors import SourceError, UsageError
from perfkit_core.readers.run_folder import read_stored
from perfkit_core.recording.writer import CycleWriter, DetachedCycle
from perfkit_core.trace.model.trace import with_rank
from perfkit_core.trace.storage.store import INCOMPLETE_MARK, SUFFIX, mark_incomplete, write_cycle
from tests.support.small_trace import small_trace

EVENTS = ",".join(
    f'{{"ph":"X","cat":"cpu_op","name":"aten::op{i % 7}","pid":1,"tid":1,"ts":{i * 10},"dur":5}}' for i in range(60_000)
)
TRACE = f'{{"schemaVersion":1,"traceEvents":[{EVENTS}]}}'.encode()


@pytest.fixture
def memory() -> Iterator[Any]:
    """Return fsspec's in-memory store, empty."""
    store = fsspec.filesystem("memory")
    store.store.clear()
    store.pseudo_dirs[:] = [""]
    yield store
    store.store.clear()
    store.pseudo_dirs[:] = [""]


class _Site(http.server.SimpleHTTPRequestHandler):
    """Serves a folder like the simplest web servers, without byte ranges. A file under ``/cut/`` ends in the middle."""

    def do_GET(self) -> None:
        if not self.path.startswith("/cut/"):
            super().do_GET()
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(TRACE)))
        self.end_headers()
        self.wfile.write(TRACE[: len(TRACE) // 2])
        self.close_connection = True

    def do_HEAD(self) -> None:
        if not self.path.startswith("/cut/"):
            super().do_HEAD()
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(TRACE)))
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing."""


@pytest.fixture
def site(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """Return the address of a local web server and the folder that it serves."""
    pytest.importorskip("aiohttp", reason="fsspec needs aiohttp for the web")
    folder = tmp_path / "site"
    folder.mkdir()
    handler = type(
        "Site", (_Site,), {"__init__": lambda self, *a, **k: _Site.__init__(self, *a, directory=folder, **k)}
    )
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        server.handle_error = lambda *_: None  # type: ignore[method-assign]  # readers that leave early
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}", folder
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("name", ["a.json", "a.json.gz"])
def test_a_trace_file_in_a_store_is_read_like_a_local_file(memory: Any, tmp_path: Path, name: str) -> None:
    content = gzip.compress(TRACE) if name.endswith(".gz") else TRACE
    (tmp_path / name).write_bytes(content)
    memory.pipe_file(f"/traces/{name}", content)
    here, there = perfkit.load(tmp_path / name), perfkit.load(f"memory://traces/{name}")
    assert len(here) == 60_000
    assert there.events.equals(here.events)
    assert there.meta.source == f"memory://traces/{name}"


def test_a_protobuf_in_a_store_is_read_like_a_local_file(memory: Any, traces: Path) -> None:
    file = next(iter(sorted((traces / "paddle").rglob("*.pb"))))
    memory.put_file(str(file), "/a.pb")
    assert perfkit.load("memory://a.pb").events.equals(perfkit.load(file).events)


def test_run_folders_are_written_to_a_store_and_read_again(memory: Any) -> None:
    ranks = [with_rank(small_trace(), rank) for rank in range(2)]
    written = [write_cycle(rank, paths.as_path("memory://runs/a")) for rank in ranks]
    assert sorted(memory.find("/runs/a")) == sorted(f"/runs/a/{path.name}" for path in written), "nothing else is left"
    assert read_stored(written[0]).events.equals(small_trace().events)
    assert perfkit.load("memory://runs/a").meta.source == "memory://runs/a"


def test_a_folder_of_trace_files_in_a_store_is_one_profile(memory: Any, traces: Path) -> None:
    for rank in range(2):
        memory.put_file(str(traces / "torch" / "dlrm-8xv100" / f"rank{rank}.json"), f"/job/rank{rank}.json")
    assert perfkit.load("memory://job").meta.ranks == (0, 1)
    assert main(["summary", "memory://job", "--view", "steps", "-o", "memory://job.csv"]) == 0
    assert memory.cat("/job.csv").count(b"\n") == 3, "a heading and a step of each rank"


def test_ranks_of_a_store_are_one_profile(memory: Any, traces: Path) -> None:
    files = [traces / "torch" / "dlrm-8xv100" / f"rank{rank}.json" for rank in range(2)]
    for file in files:
        memory.put_file(str(file), f"/job/{file.name}")
    there = perfkit.load([f"memory://job/{file.name}" for file in files])
    assert there.meta.ranks == (0, 1)
    assert there.events.equals(perfkit.load(files).events)
    with pytest.raises(SourceError, match="given twice"):
        perfkit.load(["memory://job/rank0.json", "memory://job/rank0.json"])


def test_the_commands_read_and_write_stores(memory: Any, capsys: pytest.CaptureFixture[str]) -> None:
    memory.pipe_file("/in/a.json", TRACE)
    assert main(["export", "memory://in/a.json", "-o", f"memory://out/run/a{SUFFIX}", "--to", "parquet"]) == 0
    assert main(["summary", "memory://out/run", "--view", "operators", "-o", "memory://out/t.csv"]) == 0
    assert main(["report", "memory://out/run", "-o", "memory://out/page.html"]) == 0
    assert memory.cat("/out/t.csv").decode().count("aten::op") == 7
    assert memory.cat("/out/page.html").lstrip().startswith(b"<!")
    capsys.readouterr()
    assert main(["runs", "memory://out", "--format", "csv"]) == 0
    found = capsys.readouterr().out
    assert "memory://out/run,run," in found
    assert "60000" in found


def test_runs_below_a_store_are_listed_with_what_the_store_knows(memory: Any) -> None:
    write_cycle(small_trace(), paths.as_path("memory://all/deep/run"))
    memory.pipe_file("/all/a.json", TRACE)
    memory.pipe_file("/all/.hidden/b.json", TRACE)
    memory.pipe_file("/all/notes.txt", b"hello")
    found = perfkit.list_runs("memory://all").set_index("path")
    assert set(found.index) == {"memory://all/deep/run", "memory://all/a.json"}
    assert found.loc["memory://all/a.json", "file_bytes"] == len(TRACE)
    assert found.loc["memory://all/a.json", "recorded_at"].year > 2000
    with pytest.raises(SourceError, match="no such folder"):
        perfkit.list_runs("memory://nothing")


def test_a_failed_write_leaves_nothing_in_a_store(memory: Any) -> None:
    with pytest.raises(ZeroDivisionError), replacing(paths.as_path("memory://a/b")) as file:
        file.write_bytes(b"half" * (1 // 0))
    assert memory.find("/") == []


def test_a_refused_file_is_kept_where_the_error_says(
    memory: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(type(memory), "put_file", _refuse)
    with pytest.raises(OSError, match=r"no connection; kept as .*perfkit\.parquet") as caught:
        write_cycle(small_trace(), paths.as_path("memory://runs/a"))
    assert read_stored(Path(caught.value.strerror.partition("kept as ")[2])).events.equals(small_trace().events)
    with pytest.raises(UsageError, match=r"cannot be written .no connection.; choose another path"):
        perfkit.export(small_trace(), "memory://runs/a.json")


def _refuse(*_: Any, **__: Any) -> None:
    raise RuntimeError("no\nconnection")


def test_a_handler_names_the_folder_of_refused_files(
    memory: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The cycles are kept on this machine, all in one folder."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    _kept_folder.cache_clear()
    for name in ("pipe_file", "put_file"):
        monkeypatch.setattr(type(memory), name, _refuse)
    handler: CycleWriter[Any] = CycleWriter("memory://runs/a", lambda profiler, place: DetachedCycle(small_trace))
    for _ in range(2):
        handler(None)
    handler.flush()
    first, second = [record.getMessage() for record in caplog.records]
    assert first.endswith("is not writable (no connection): new cycles stay on this machine until it is")
    (folder,) = tmp_path.glob("perfkit-kept-*")
    assert len(list(folder.glob(f"*{SUFFIX}"))) == 2
    assert f"no connection; kept as {folder}" in second
    assert "could not" not in second
    _kept_folder.cache_clear()


def test_missing_cycles_in_a_store_are_reported(memory: Any, caplog: pytest.LogCaptureFixture) -> None:
    folder = paths.as_path("memory://runs/a")
    write_cycle(small_trace(), folder)
    with caplog.at_level(logging.DEBUG, "perfkit"):
        for cycle in range(2):
            mark_incomplete(folder, cycle, RuntimeError("lost"))
    assert not caplog.records
    assert memory.cat(f"/runs/a/{INCOMPLETE_MARK}").decode().count("lost") == 2
    assert "incomplete-run" in [finding.code for finding in perfkit.load("memory://runs/a").quality]


def test_a_trial_write_to_a_store_leaves_nothing(memory: Any, monkeypatch: Any) -> None:
    folder = paths.as_path("memory://runs/a")
    assert paths.why_unwritable_store(folder) is None
    assert memory.find("/") == []
    monkeypatch.setattr(type(memory), "pipe_file", _refuse)
    assert paths.why_unwritable_store(folder) == "no connection"


def test_files_from_the_web_keep_signatures_out_of_reports(site: tuple[str, Path]) -> None:
    address, folder = site
    (folder / "a.json.gz").write_bytes(gzip.compress(TRACE))
    trace = perfkit.load(f"{address}/a.json.gz?signature=secret")
    assert len(trace) == 60_000
    assert trace.meta.source == f"{address}/a.json.gz"
    (folder / "plain.json").write_bytes(TRACE)
    assert perfkit.load(f"{address}/plain.json").events.equals(trace.events)


def test_a_stored_run_is_read_from_a_web_server_without_ranges(site: tuple[str, Path]) -> None:
    address, folder = site
    file = write_cycle(small_trace(), folder)
    assert perfkit.load(f"{address}/{file.name}").events.equals(small_trace().events)


def test_a_connection_that_breaks_is_one_line(site: tuple[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    address, _ = site
    assert main(["summary", f"{address}/cut/a.json"]) == 2
    told = capsys.readouterr().err
    assert told.startswith(f"perfkit: error: {address}/cut/a.json: cannot be read (")
    assert "credentials" in told
    assert told.count("\n") == 1


@pytest.mark.parametrize("place", ["http://127.0.0.1:9/a.json", "memory://nothing/a.json", "memory://nothing"])
def test_an_unreachable_address_is_one_line(memory: Any, place: str, capsys: pytest.CaptureFixture[str]) -> None:
    if place.startswith("http"):
        pytest.importorskip("aiohttp", reason="fsspec needs aiohttp for the web")
    assert main(["summary", place]) == 2
    told = capsys.readouterr().err
    assert told.startswith(f"perfkit: error: {place}: ")
    assert told.count("\n") == 1
    assert "Traceback" not in told


def test_a_missing_driver_says_how_it_is_installed(capsys: pytest.CaptureFixture[str], monkeypatch: Any) -> None:
    def absent(protocol: str) -> None:
        raise ImportError(f"please install the driver of {protocol}")

    monkeypatch.setattr(fsspec, "get_filesystem_class", absent)
    for place, command in (("s3://b/run", "pip install s3fs"), ("gs://b/run", "pip install gcsfs"),
                           ("https://h/a.json", 'pip install "fsspec[http]"')):  # fmt: skip
        assert main(["summary", place]) == 2
        protocol = place.partition(":")[0]
        assert (
            capsys.readouterr().err == f"perfkit: error: {place}: no driver for {protocol}:// is installed; {command}\n"
        )


def test_unknown_stores_are_refused() -> None:
    with pytest.raises(UsageError, match="unsupported URL scheme foo://"):
        perfkit.load("foo://bucket/run")


def test_paths_of_this_machine_stay_those_of_pathlib(tmp_path: Path) -> None:
    for place in ("runs/a", "C:\\runs", "s3:/one/slash", tmp_path, f"file://{tmp_path}/with%20space"):
        assert isinstance(paths.as_path(place), Path)
    assert paths.as_path(f"file://{tmp_path}/with%20space") == tmp_path / "with space"
    assert paths.is_remote(paths.as_path(paths.as_path("memory://a/b")))


def test_a_store_that_refuses_is_one_line_for_every_verb(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str], memory: Any
) -> None:
    """Drivers raise their own errors, for instance for a missing login or missing libraries."""
    told = "Unable to load libjvm\n" + "dlopen(/usr/lib/jvm) failed: no such file\n" * 50

    def refuse(*args: object, **options: object) -> None:
        raise ConnectionRefusedError(told)

    for name in ("info", "ls", "exists", "isdir", "isfile", "_open", "walk"):
        monkeypatch.setattr(type(memory), name, refuse)
    output = str(tmp_path / "a.perfkit.parquet")
    for verb in (
        ("summary",),
        ("compare", "memory://b"),
        ("export", "-o", output),
        ("export", "--stream", "-o", output),
    ):
        assert main([verb[0], "memory://a", *verb[1:]]) == 2
        lines = capsys.readouterr().err.splitlines()
        assert len(lines) == 1
        assert "memory://" in lines[0]
        assert "cannot be read (Unable to load libjvm); hdfs:// needs Java" in lines[0]
