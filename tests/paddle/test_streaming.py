"""A file of Paddle that is streamed to Parquet and loaded equals the file read into memory, in every cell, finding and
metadata field."""

from __future__ import annotations

import gzip
import random
from pathlib import Path

import pytest

import perfkit_core
from perfkit_core.errors import SourceError
from perfkit_core.plugins.contracts import Source
from perfkit_core.plugins.manager import get_plugins
from perfkit_core.readers.load import stream
from perfkit_core.testing.traces import plain
from perfkit_core.trace.model import schema
from perfkit_core.trace.model.trace import Trace
from perfkit_paddle import pb_source
from tests.support.paths import DATA


def streamed(file: Path, folder: Path, partial: bool = False) -> Trace:
    target = folder / "streamed.perfkit.parquet"
    stream(file, target, partial=partial)
    found = perfkit_core.load(target)
    assert found.meta.source == str(target)
    return found


def same(found: Trace, expected: Trace) -> None:
    assert (found.meta, found.quality) == (expected.with_meta(source=found.meta.source).meta, expected.quality)
    for name in schema.COLUMN_NAMES:
        assert plain(found.events, name).equals(plain(expected.events, name)), name


@pytest.fixture(params=[64, 5000, pb_source.PIECE_BYTES])
def piece_bytes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Set the size of a piece. A node is larger than 64 bytes, and a small file is one piece."""
    monkeypatch.setattr(pb_source, "PIECE_BYTES", request.param)
    return int(request.param)


@pytest.mark.slow
def test_every_streamed_protobuf_is_the_loaded_one(paddle_traces: Path, tmp_path: Path, piece_bytes: int) -> None:
    files = sorted(f for f in paddle_traces.rglob("*.pb*") if f.suffix in (".pb", ".gz"))
    assert len(files) == 21
    for file in files:
        if file.stat().st_size < 250 * piece_bytes:  # in more pieces, a file takes seconds
            same(streamed(file, tmp_path), perfkit_core.load(file))


def test_every_streamed_json_is_the_loaded_one(paddle_traces: Path, tmp_path: Path) -> None:
    files = [f for f in sorted(paddle_traces.rglob("*.json*")) if "stats" not in f.name]
    assert len(files) >= 19
    for file in files:
        same(streamed(file, tmp_path), perfkit_core.load(file))


@pytest.mark.parametrize("name", ["paddle-mlp.pb", "paddle-mlp.json.gz"])
def test_our_own_recording(tmp_path: Path, piece_bytes: int, name: str) -> None:
    same(streamed(DATA / name, tmp_path), perfkit_core.load(DATA / name))


@pytest.mark.parametrize("seed", range(4))
def test_a_file_that_is_cut_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """Streaming keeps the same events of a truncated file as reading it into memory. Without ``partial``, both raise an
    error."""
    content, draw = (DATA / "paddle-mlp.pb").read_bytes(), random.Random(seed)
    for number in range(12):
        monkeypatch.setattr(pb_source, "PIECE_BYTES", draw.choice([64, 400, 3000, 1 << 20]))
        file = tmp_path / f"cut{number}.pb"
        file.write_bytes(content[: draw.randrange(40, len(content) - 400) if number else -10])  # -10: after the events
        same(streamed(file, tmp_path, partial=True), perfkit_core.load(file, partial=True))
        with pytest.raises(SourceError, match=r"cut\d+\.pb: .* \(byte \d+\)"):
            stream(file, tmp_path / "no.perfkit.parquet")
        assert not (tmp_path / "no.perfkit.parquet").exists()


def test_damage_says_the_byte_of_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names the same byte as when the file is read into memory, although the damage is in a late piece."""
    content = bytearray((DATA / "paddle-mlp.pb").read_bytes())
    at = content.rindex(b"matmul dygraph")
    content[at - 1] = 0xFF  # makes the name longer than the event around it
    file = tmp_path / "damaged.pb"
    file.write_bytes(content)
    with pytest.raises(SourceError) as whole:
        perfkit_core.load(file)
    monkeypatch.setattr(pb_source, "PIECE_BYTES", 2000)
    with pytest.raises(SourceError) as piecewise:
        stream(file, tmp_path / "no.perfkit.parquet")
    assert piecewise.value.message == whole.value.message.replace(f" of {len(content)})", ")")


def test_a_damaged_gzip_file_is_partly_streamed_on_request(tmp_path: Path) -> None:
    packed = gzip.compress((DATA / "paddle-mlp.pb").read_bytes())
    file = tmp_path / "cut.pb.gz"
    file.write_bytes(packed[: len(packed) // 2])
    with pytest.raises(SourceError, match=r"cut\.pb\.gz: damaged or truncated gzip data"):
        stream(file, tmp_path / "no.perfkit.parquet")
    found = streamed(file, tmp_path, partial=True)
    assert len(found)
    assert found.meta.incomplete


def test_without_its_reader_a_streamed_file_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "t.perfkit.parquet"
    stream(DATA / "paddle-mlp.pb", target)
    sources = [s for s in get_plugins().sources() if s.name != "paddle-pb"]

    def without(self: object) -> list[Source]:
        return sources

    monkeypatch.setattr(type(get_plugins()), "sources", without)
    with pytest.raises(SourceError, match="in this file: reader 'paddle-pb' is missing"):
        perfkit_core.load(target).to_pandas()
