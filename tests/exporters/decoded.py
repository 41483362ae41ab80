"""Exported files, decoded independently of the exporters, and the comparison of a trace that was read back."""

from __future__ import annotations

import gzip
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec

from perfkit_core import export
from perfkit_core.trace.model.trace import Trace
from tests.support import wire


def assert_same(read: Trace, written: Trace) -> None:
    """Compare every column of every row, the findings, and the metadata except for the file name."""
    for name in written.events.column_names:
        mine, theirs = (one.events[name].to_pylist() for one in (read, written))
        if name == "args":
            mine, theirs = ([text and msgspec.json.decode(text) for text in texts] for texts in (mine, theirs))
        assert mine == theirs, name
    same = {"source": "", "format": ""}
    assert msgspec.structs.replace(read.meta, **same) == msgspec.structs.replace(written.meta, **same)
    assert read.quality == written.quality


def folded(found: Trace, path: Path, weight: str | None = None) -> dict[str, int]:
    export(found, path, weight=weight)
    lines = [line.rsplit(" ", 1) for line in path.read_text(encoding="utf-8").splitlines()]
    assert len({stack for stack, _ in lines}) == len(lines)
    return {stack: int(value) for stack, value in lines}


class Pprof:
    """A pprof file, decoded by its wire format. The field numbers are those of google/pprof's profile.proto."""

    def __init__(self, found: Trace, path: Path) -> None:
        export(found, path)
        self.profile = wire.fields(gzip.decompress(path.read_bytes()))
        self.texts = [bytes(text).decode() for text in self.profile[6]]
        assert self.texts[0] == ""
        functions = [wire.fields(one) for one in self.profile[5]]
        self.functions = {one[1][0]: (self._text(one, 2), self._text(one, 4)) for one in functions}
        self.locations = {one[1][0]: wire.fields(one[4][0]) for one in map(wire.fields, self.profile[4])}
        self.types = [wire.fields(one) for one in self.profile[1]]

    def written(self) -> set[tuple[str, str, str, int]]:
        """Return the name, system name, file and first line of the functions with samples, without the thread."""
        named = {self.locations[n][1][0] for one in map(wire.fields, self.profile[2]) for n in wire.packed(one[1])}
        found = [one for one in map(wire.fields, self.profile[5]) if one[1][0] in named]
        assert len(found) == len({one[1][0] for one in found})
        return {(*(self._text(one, field) for field in (2, 3, 4)), one[5][0] if 5 in one else 0) for one in found}

    def _text(self, message: wire.Fields, field: int) -> str:
        return self.texts[message[field][0]] if field in message else ""

    def head(self) -> dict[str, Any]:
        types = [f"{self._text(one, 1)}/{self._text(one, 2)}" for one in self.types]
        return {"types": types, "default": self._text(self.profile, 14), "duration": self.profile[10][0]}

    def places(self) -> set[tuple[str, str, int]]:
        return {(*self.functions[line[1][0]], line[2][0] if 2 in line else 0) for line in self.locations.values()}

    def stacks(self) -> list[tuple[str, str, dict[str, int]]]:
        """Return the thread, the functions (outermost first) and the values by type of each sample."""
        names = [self._text(one, 1) for one in self.types]
        found = []
        for sample in map(wire.fields, self.profile[2]):
            path = [self.functions[self.locations[number][1][0]][0] for number in wire.packed(sample[1])[::-1]]
            label = wire.fields(sample[3][0])
            assert self._text(label, 1) == "thread"
            assert path
            found.append((self._text(label, 2), ";".join(path), dict(zip(names, wire.packed(sample[2]), strict=True))))
        return found

    def sums(self) -> dict[str, int]:
        total: Counter[str] = Counter({self._text(one, 1): 0 for one in self.types})
        for _, _, values in self.stacks():
            total.update(values)
        return dict(total)
