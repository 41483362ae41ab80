"""Texts of events: the scanner, whose buffer ends at a guarded page, against the reference reader."""

from __future__ import annotations

import functools
import gzip
import json
import random
from collections.abc import Sequence
from typing import Final

import pyarrow as pa

from perfkit_core.readers.chrome.dialect import DECODER, UNDECODABLE, ChromeEvent, Dialect
from perfkit_core.readers.chrome.event_collector import EventCollector
from perfkit_core.readers.scanner import chunks, events
from perfkit_core.readers.scanner.scanner import Scanner
from perfkit_paddle.json_source import PaddleDialect
from perfkit_torch.dialect import TorchDialect
from tests.fuzz.guarded import Guarded
from tests.fuzz.mutation import mutated
from tests.fuzz.target import FindingError, Target
from tests.support.paths import DATA

_TOGETHER: Final = 256
"""Number of inputs whose rows are compared together, because making a table takes longer than reading an event."""
_COUNTS: Final = ("unknown", "untimed", "mistimed", "reversed", "thread_names")


class EventTexts(Target):
    def __init__(self, framework: str) -> None:
        self.name = f"events-{framework}"
        self._recording = DATA / f"{framework}-mlp.json.gz"
        self._dialect: type[Dialect] = {"torch": TorchDialect, "paddle": PaddleDialect}[framework]
        self._guarded = Guarded()
        self._begin()

    def _begin(self) -> None:
        self._reference, self._scanned = EventCollector(self._dialect(), True), EventCollector(self._dialect(), True)
        self._scanner, self._inputs, self._decoded = Scanner(self._dialect()), list[bytes](), list[ChromeEvent]()

    @functools.cached_property
    def seeds(self) -> Sequence[bytes]:
        with gzip.open(self._recording, "rt", encoding="utf-8") as file:
            text = file.read()
        return [text[begin:end].encode() for begin, end in extents(text)]

    def make(self, chance: random.Random) -> bytes:
        chosen = [chance.choice(self.seeds) for _ in range(chance.choice([1, 1, 1, 2, 3]))]
        return mutated(b",".join(chosen), chance)

    def run(self, data: bytes) -> bool:
        if not data.lstrip().startswith(b"{") or len(data) >= self._guarded.size - 64:
            return False
        data = data.lstrip()
        decoded = _decoded(data)
        portion, scanned = chunks.accepted(self._scanner.scan(self._guarded.put(data + b"]"), 0, len(data) + 1))
        whole = scanned.status == events.CLOSED and scanned.position == len(data)
        rest = None if whole else _decoded(data[scanned.position :])
        if decoded is None:
            if whole or (rest is not None and scanned.position):
                raise FindingError("the scanner reads what is not JSON")
            return False
        if not whole and rest is None:
            raise FindingError(f"the scanner stops at byte {scanned.position}, which is not between events")
        self._decoded += decoded
        self._scanned.add(portion)
        if rest:
            self._scanned.add(rest)
        self._inputs.append(data)
        if len(self._inputs) >= _TOGETHER:
            self.end()
        return True

    def end(self) -> None:
        inputs = self._inputs
        self._reference.add(self._decoded)
        different = self._different()
        self._begin()
        if different and len(inputs) > 1:
            for data in inputs:
                self.run(data)
                self.end()
        if different:
            raise FindingError(f"{different}, in one of {len(inputs)} inputs: {inputs[0][:300]!r}")

    def _different(self) -> str:
        for count in _COUNTS:
            ours, theirs = getattr(self._scanned, count), getattr(self._reference, count)
            if ours != theirs:
                return f"{count}: {ours} by the scanner, {theirs} by the reference reader"
        ours, theirs = self._scanned.drain(), self._reference.drain()
        for name in theirs.column_names:
            if not _plain(ours[name]).equals(_plain(theirs[name])):
                return f"the column {name} differs"
        return ""


def extents(text: str) -> list[tuple[int, int]]:
    """Return (begin, end) of each event in the text of a Chrome trace."""
    at, found = text.index("[", text.index('"traceEvents"')) + 1, []
    while (begin := text.find("{", at)) >= 0 and "]" not in text[at:begin]:
        _, at = json.JSONDecoder().raw_decode(text, begin)
        found.append((begin, at))
    return found


def _decoded(text: bytes) -> list[ChromeEvent] | None:
    try:
        return DECODER.decode(b"[" + text + b"]")
    except UNDECODABLE:
        return None


def _plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return column.cast(pa.string()) if pa.types.is_dictionary(column.type) else column
