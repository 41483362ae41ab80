"""Live events as the text of Chrome events, which the core's recorder reads.

Columns come from torch in lists; no event becomes a Python object of its own. Metadata that torch made as JSON text is
joined as it is.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import msgspec

from perfkit_core.sources.chrome import ChromeEvent
from perfkit_core.trace import IntArray

DecodedBatch = tuple[list[ChromeEvent], tuple[IntArray, IntArray]]
"""Events, and their start and duration in ns."""

INSTANT: Final = "cpu_instant_event"


@dataclass(frozen=True, slots=True)
class LiveBatch:
    """Columns of some events, each of shape (events,).

    ``ids`` and ``metadata`` hold members of the event's arguments as JSON text (``"a": 1, "b": 2``), or nothing.
    ``times`` are start and duration in ns.
    """

    categories: list[str]
    names: list[str]
    pids: list[int]
    tids: list[int]
    ids: list[str]
    metadata: list[str]
    times: tuple[IntArray, IntArray]

    def text(self) -> bytes:
        """The body of a JSON array of Chrome events. Invalid where ``metadata`` is: see :meth:`mended`."""
        keys = [*zip(self.categories, self.names, self.pids, self.tids, strict=True)]
        openings = {key: _opening(*key) for key in set(keys)}
        pieces = ["}},"] * (3 * len(keys))
        pieces[0::3] = map(openings.__getitem__, keys)
        pieces[1::3] = [
            f"{ids},{more}" if ids and more else ids or more for ids, more in zip(self.ids, self.metadata, strict=True)
        ]
        return "".join(pieces)[:-1].encode()

    def mended(self) -> LiveBatch:
        """Metadata that is no valid JSON kept as one text, the argument ``metadata_json``."""
        return replace(self, metadata=[more if _valid(more) else _quoted(more) for more in self.metadata])


def decoded(batch: LiveBatch) -> DecodedBatch:
    """The events and times that :meth:`perfkit_core.sources.dialect.Recorder.add` takes."""
    try:
        return _decode(batch), batch.times
    except ValueError:
        return _decode(batch.mended()), batch.times


def _decode(batch: LiveBatch) -> list[ChromeEvent]:
    events = msgspec.json.decode(b"[" + batch.text() + b"]", type=list[ChromeEvent])
    if len(events) != len(batch.names):  # metadata that closes its event and opens another
        raise ValueError("other events than those recorded")
    return events


def _opening(category: str, name: str, pid: int, tid: int) -> str:
    ph = "i" if category == INSTANT else "X"
    return f'{{"ph":"{ph}","cat":{_json(category)},"name":{_json(name)},"pid":{pid},"tid":{tid},"args":{{'


def _json(text: str) -> str:
    return msgspec.json.encode(text).decode()


def _valid(metadata: str) -> bool:
    try:
        msgspec.json.decode(f"{{{metadata}}}", type=dict[str, object])
    except msgspec.DecodeError:
        return False
    return True


def _quoted(metadata: str) -> str:
    return f'"metadata_json":{_json(metadata)}'
