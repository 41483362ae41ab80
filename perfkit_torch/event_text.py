"""Live events as the text of Chrome events, which the core's recorder reads.

Columns come from torch in lists; no event becomes a Python object of its own. Metadata that torch made as JSON text is
joined as it is.

Texts of live events, also where torch hands out bytes that are none.

torch keeps the names of some Python frames (of line 0) beyond the life of their functions: then they are whatever
lies in that memory now, and reading one raises UnicodeDecodeError.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import msgspec

from perfkit_core.algorithms.arrays import IntArray
from perfkit_core.readers.chrome.repair import values_mended

Times = tuple[IntArray, IntArray]
"""Start and duration in ns, each of shape (events,)."""

INSTANT: Final = "cpu_instant_event"


@dataclass(frozen=True, slots=True)
class LiveBatch:
    """Columns of some events, each of shape (events,).

    ``metadata`` holds members of the event's arguments as JSON text (``"a": 1, "b": 2``), or nothing; ``ids`` gives
    those that go behind it.
    """

    categories: list[str]
    names: list[str]
    pids: list[int]
    tids: list[int]
    metadata: list[str]
    times: Times
    ids: Callable[[list[str]], list[str]] | None = None

    def text(self) -> bytes:
        """The body of a JSON array of Chrome events. Invalid where ``metadata`` is: see :meth:`mended`."""
        keys = [*zip(self.categories, self.names, self.pids, self.tids, strict=True)]
        openings = {key: _opening(*key) for key in set(keys)}
        pieces = ["}},"] * (3 * len(keys))
        pieces[0::3] = map(openings.__getitem__, keys)
        pieces[1::3] = self._arguments()
        return "".join(pieces)[:-1].encode()

    def _arguments(self) -> list[str]:
        if self.ids is None:
            return self.metadata
        both = zip(self.metadata, self.ids(self.metadata), strict=True)
        return [f"{members},{ids}" if members and ids else members or ids for members, ids in both]

    def mended(self) -> LiveBatch:
        """Metadata that is no valid JSON mended as an event of a file is (numbers as ``inf``), else kept as one text,
        the argument ``metadata_json``."""
        return replace(self, metadata=[*map(_mended, self.metadata)])


def record(add: Callable[[bytes, Times], None], batch: LiveBatch) -> None:
    """Hand a batch to the recorder's ``add``; where that finds the text invalid (ValueError), once more, mended."""
    try:
        add(batch.text(), batch.times)
    except ValueError:
        add(batch.mended().text(), batch.times)


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


def _mended(metadata: str) -> str:
    if _valid(metadata):
        return metadata.strip()
    mended = values_mended(metadata.encode()).decode()
    return mended if _valid(mended) else _quoted(metadata)


def _quoted(metadata: str) -> str:
    return f'"metadata_json":{_json(metadata)}'


def texts(read: Callable[[Any], str], events: Sequence[Any]) -> list[str]:
    """``read`` of each event."""
    try:
        return [*map(read, events)]
    except UnicodeDecodeError:
        return [text(read, event) for event in events]


def text(read: Callable[[Any], str], event: Any) -> str:
    """``read`` of one event, bytes that are no UTF-8 written as ``\\xe8``."""
    try:
        return read(event)
    except UnicodeDecodeError as error:
        return error.object.decode("utf-8", "backslashreplace")
