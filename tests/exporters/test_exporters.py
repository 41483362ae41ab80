"""Exports: formats by suffix, files that appear only when complete, tables, and the contract of all exporters."""

from __future__ import annotations

import csv
import gzip
import io
import os
import stat
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any, BinaryIO

import pandas as pd
import pytest

from perfkit_core import UsageError, export, load
from perfkit_core.exporters import EXPORTERS
from perfkit_core.exporters.export import choose, writing
from perfkit_core.plugins.contracts import Exporter, ExportOptions
from perfkit_core.testing.conformance import check_exporter
from perfkit_core.trace.model.trace import Trace
from tests.support.events import host, trace
from tests.support.small_trace import HOSTILE, small_trace

FORMATS = {one.name: one for one in EXPORTERS}


@pytest.mark.parametrize("name", FORMATS)
def test_every_exporter_keeps_its_contract(name: str) -> None:
    check_exporter(FORMATS[name], small_trace(HOSTILE))


def silent(trace: Trace, file: BinaryIO, options: ExportOptions) -> str:
    return ""


def seeking(trace: Trace, file: BinaryIO, options: ExportOptions) -> str:
    file.seek(0)
    return "nothing"


def different(trace: Trace, file: BinaryIO, options: ExportOptions) -> str:
    file.write(uuid.uuid4().bytes)
    return "nothing"


@pytest.mark.parametrize(
    ("write", "said"), [(silent, "returns no reason"), (different, "different bytes in a second call")]
)
def test_the_contract_notices_what_breaks_it(write: Any, said: str) -> None:
    with pytest.raises(AssertionError, match=said):
        check_exporter(Exporter("test", "test", (".test",), write), small_trace())


def test_the_contract_forbids_to_seek() -> None:
    with pytest.raises(io.UnsupportedOperation, match="must not seek"):
        check_exporter(Exporter("test", "test", (".test",), seeking), small_trace())


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("a.json", "chrome"), ("a.JSON.GZ", "chrome"), ("a.folded", "folded"), ("a.txt.gz", "folded"),
        ("a.speedscope.json", "speedscope"), ("a.speedscope.json.gz", "speedscope"), ("a.pb.gz", "pprof"),
        ("a.pprof", "pprof"), ("a.csv", "csv"), ("a.perfkit.parquet", "parquet"),
    ],
)  # fmt: skip
def test_the_name_of_the_file_tells_the_format(file: str, name: str) -> None:
    assert choose(None, Path(file)).name == name
    assert choose("csv", Path(file)).name == "csv"


@pytest.mark.parametrize("file", ["a", "a.html", "json", "a.gz", "a.pb"])
def test_a_name_that_tells_nothing_is_refused(file: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"does not determine a format.*--to"):
        export(small_trace(), tmp_path / file)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("to", "weight", "said"), [("perfetti", None, "known: chrome, folded"),
                                                    ("csv", "cpu", "csv has no weight"),
                                                    ("folded", "kg", "known: cpu, device, calls, bytes")])  # fmt: skip
def test_what_does_not_exist_is_refused(to: str, weight: str | None, said: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=said):
        export(small_trace(), tmp_path / "a.json", to, weight=weight)


@pytest.mark.parametrize("name", FORMATS)
def test_names_that_end_in_gz_are_compressed_once(name: str, tmp_path: Path) -> None:
    export(small_trace(), tmp_path / "plain", name)
    export(small_trace(), tmp_path / "packed.gz", name)
    plain = (tmp_path / "plain").read_bytes()
    assert gzip.decompress((tmp_path / "packed.gz").read_bytes()) == plain
    export(small_trace(), tmp_path / "p.pb.gz", "pprof")
    assert gzip.decompress((tmp_path / "p.pb.gz").read_bytes())[:2] != b"\x1f\x8b"


def test_a_failed_export_leaves_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text("old")
    with pytest.raises(ZeroDivisionError), writing(path) as file:
        file.write(b"half" * (1 // 0))
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_the_file_takes_its_name_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "new" / "a.json"
    with writing(path) as file:
        file.write(b"all")
        assert not path.exists()
    assert path.read_bytes() == b"all"
    os.link(path, tmp_path / "same")
    with writing(path) as file:
        file.write(b"new")
    assert (tmp_path / "same").read_bytes() == b"all", "written over, not replaced"
    assert stat.S_IMODE(path.stat().st_mode) & stat.S_IRUSR


def test_a_place_that_cannot_be_written_is_a_usage_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="cannot be written"):
        export(small_trace(), tmp_path / "file" / "a.json")


def test_a_named_pipe_is_written_to(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe.folded"
    os.mkfifo(pipe)
    with subprocess.Popen(["cat", str(pipe)], stdout=subprocess.PIPE) as reader:
        export(small_trace(), pipe)
        out, _ = reader.communicate()
    assert out.startswith(b"1;step ")
    assert stat.S_ISFIFO(pipe.stat().st_mode)


def test_csv_has_every_cell(tmp_path: Path) -> None:
    found = small_trace(HOSTILE)
    export(found, tmp_path / "t.csv")
    with (tmp_path / "t.csv").open(newline="", encoding="utf-8") as file:
        head, *rows = csv.reader(file)
    assert head == found.events.column_names
    expected = [["" if cell is None else str(cell) for cell in row.values()] for row in found.events.to_pylist()]
    assert rows == expected


def test_parquet_is_read_by_pandas_and_by_perfkit(tmp_path: Path) -> None:
    found = small_trace()
    file = tmp_path / "t.parquet"
    export(found, file)
    again = load(file)
    assert again.events.to_pylist() == found.events.to_pylist()
    assert (again.meta, again.quality) == (found.with_meta(source=str(file)).meta, found.quality)
    assert pd.read_parquet(file)["dur_ns"].tolist() == found.ints("dur_ns").tolist()


def test_an_empty_trace_says_so(tmp_path: Path) -> None:
    for name in FORMATS:
        assert export(trace([host("a", "operator", 0, 1)]), tmp_path / "a", name) == ""
        assert export(Trace(small_trace().events.slice(0, 0), small_trace().meta), tmp_path / "a", name)


def test_without_protobuf_pprof_says_what_to_install() -> None:
    code = (
        "import sys; sys.modules['google.protobuf'] = None\n"
        "from perfkit_core.exporters.pprof import profile_class\n"
        "profile_class()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, encoding="utf-8")
    assert 'UsageError: the format pprof requires protobuf; run pip install "perfkit[pprof]"' in done.stderr
