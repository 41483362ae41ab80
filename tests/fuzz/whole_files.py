"""Whole files: each reader takes the file, or refuses it with one error of perfkit."""

from __future__ import annotations

import functools
import gzip
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from perfkit_core.base.runtime.build import checked as checking_indices
from perfkit_core.base.runtime.compiled import Mode, in_python
from perfkit_core.cli.main import main
from perfkit_core.errors import PerfkitError
from perfkit_core.measure.verify import ledger
from perfkit_core.plugins.flops.peaks import read_peaks
from perfkit_core.ranks import files as partial_results
from perfkit_core.readers.load import load_one
from perfkit_core.readers.read_options import ReadOptions
from perfkit_core.trace.model.trace import Trace
from tests.fuzz.event_texts import extents
from tests.fuzz.mutation import mutated
from tests.fuzz.target import FindingError, Target
from tests.support import nsys
from tests.support.allocator import Allocator, stack
from tests.support.paths import DATA
from tests.support.scanned import both, difference

FLIPS = (b"\0", b"\1", b"\x7f", b"\x80", b"\xfe", b"\xff", b"\xff" * 8, b"\0" * 8, b"\xff\x7f" * 5)


class WholeFile(Target):
    """``read`` takes a file, or raises PerfkitError."""

    def __init__(
        self,
        name: str,
        folder: Path,
        file: str,
        seeds: Callable[[], Sequence[bytes]],
        read: Callable[[Path], Any],
        pieces: Sequence[bytes] | None = FLIPS,
    ) -> None:
        self.name, self._path, self._seeds, self._read, self._pieces = name, folder / file, seeds, read, pieces

    @functools.cached_property
    def seeds(self) -> Sequence[bytes]:
        return self._seeds()

    def make(self, chance: random.Random) -> bytes:
        seed = chance.choice(self.seeds)
        return mutated(seed, chance) if self._pieces is None else mutated(seed, chance, self._pieces)

    def run(self, data: bytes) -> bool:
        self._path.write_bytes(data)
        try:
            self._read(self._path)
        except PerfkitError as error:
            if "\n" in error.message or not error.message:
                raise FindingError(f"a refusal of several lines: {error.message!r}") from error
            return False
        return True


def targets(folder: Path) -> list[WholeFile]:
    def of(name: str, file: str, *arguments: Any) -> WholeFile:
        return WholeFile(name, folder, file, *arguments)

    return [
        of("chrome-torch", "t.json", lambda: [_unpacked("torch-mlp.json.gz")], _alike, None),
        of("chrome-paddle", "t.json", lambda: [_unpacked("paddle-mlp.json.gz")], _alike, None),
        of("gzip", "t.json.gz", lambda: [gzip.compress(_unpacked("torch-mlp.json.gz"), mtime=0)], _loaded),
        of("protobuf", "t.pb", lambda: [(DATA / "paddle-mlp.pb").read_bytes()], _loaded),
        of("nsight", "t.sqlite", lambda: [_database(folder)], _loaded),
        of("snapshot", "t.pickle", lambda: [_snapshot()], _loaded),
        of("partial-results", "t.perfkit.partial", lambda: [_shard(folder)],
           lambda path: partial_results.read_all([path], False)),
        of("ledger", "t.jsonl", lambda: [LEDGER], lambda path: ledger.summary(ledger.read(path)), None),
        of("peaks", "t.toml", lambda: [PEAKS], read_peaks, None),
    ]  # fmt: skip


LEDGER = b"""\
{"date":"2026-01-01","outcome":"predicted","base":"a","change":"b","p10_ns":1,"p50_ns":2,"p90_ns":3,"base_ns":9}
{"date":"2026-01-02","outcome":"verified","base":"a","change":"b","saving_ratio":0.25,"base_ns":9,"p50_ns":5,"runs":3}
"""
PEAKS = b"""\
[[devices]]
names = ["cpu", "NVIDIA H100"]
source = "measured"
memory_gb_per_s = 50
[devices.matrix_tflop_per_s]
float32 = 1.5
"""


def _alike(path: Path) -> None:
    """Read the file by the scanner and by the reference reader, whole and in part."""
    for partial in (False, True):
        different = both(path, partial, chunk_bytes=1500)
        if different:
            raise FindingError(different)
    checked(load_one(path))


def _loaded(path: Path) -> None:
    """Read the file whole and in part, with compiled and with interpreted functions."""
    for partial in (True, False):
        results: list[Trace | str] = []
        refused: PerfkitError | None = None
        for instead in (checking_indices, in_python):
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(Mode, "instead", instead)
                try:
                    results.append(load_one(path, ReadOptions(partial)))
                except PerfkitError as error:
                    refused = error
                    results.append(str(error))
        different = difference(*results)
        if different:
            raise FindingError(f"compiled and interpreted functions differ: {different}")
        if refused:
            raise refused
        assert isinstance(results[0], Trace)
        checked(results[0])


def checked(trace: Trace) -> None:
    """Check what every trace promises: references stay in the table, and each parent precedes its child."""
    parent, launch, row = trace.ints("parent"), trace.ints("launched_by"), np.arange(len(trace))
    if not ((parent >= -1) & (parent < row) & (launch >= -1) & (launch < len(trace))).all():
        raise FindingError("a reference leaves the table")
    if len(trace) and trace.ints("dur_ns").min() < 0:
        raise FindingError("a duration is negative")


def _unpacked(name: str) -> bytes:
    """Return the first events of a recording, because more of them would only take longer."""
    with gzip.open(DATA / name, "rt", encoding="utf-8") as file:
        text = file.read()
    _, end = extents(text)[40]
    return (text[:end] + "]}").encode()


def _database(folder: Path) -> bytes:
    return nsys.small().write(folder / "seed.sqlite").read_bytes()


def _snapshot() -> bytes:
    import pickle

    allocator = Allocator()
    allocator.mark("ProfilerStep#1", "START")
    first = allocator.alloc(5000, stack(("net.py", 3, "forward")))
    allocator.alloc(700, stack(("net.py", 4, "forward")))
    allocator.free(first)
    allocator.mark("ProfilerStep#1", "END")
    return pickle.dumps(allocator.snapshot())


def _shard(folder: Path) -> bytes:
    path = folder / "seed.perfkit.partial"
    ranks = [str(DATA / "ranks" / f"rank{number}.json.gz") for number in (0, 1)]
    code = main(["summary", *ranks, "--view", "operators,partition", "--shard", "1/1", "-o", str(path)])
    if code:
        raise RuntimeError(f"perfkit summary --shard ended with exit code {code}")
    return path.read_bytes()
