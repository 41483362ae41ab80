"""Reading takes time in proportion to the file. Quadratic code would need hours for some of these inputs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from perfkit_core.readers.chrome import repair
from perfkit_core.readers.chrome.reader import ChromeFile
from perfkit_core.readers.load import load
from perfkit_core.trace.storage.bytestream import Window
from tests.support.chrome import event, raw, write

BLANKS = b" " * (12 << 20)
ONE = json.dumps(event("aten::mm", 0)).encode()


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of bytes in the window after each read. Each read copies these bytes."""
    sizes: list[int] = []
    read = Window.more

    def counted(window: Window, count: int = 1 << 20) -> bool:
        more = read(window, count)
        sizes.append(len(window.data))
        return more

    monkeypatch.setattr(Window, "more", counted)
    return sizes


@pytest.mark.parametrize(
    "text",
    [
        BLANKS + b'{"schemaVersion": 1, "traceEvents": [%s]}' % ONE,
        b"{" + BLANKS + b'"schemaVersion": 1,' + BLANKS + b'"traceEvents": [%s]}' % ONE,
        b'{"schemaVersion":' + BLANKS + b'1, "traceEvents": [%s]' % ONE + BLANKS + b"}",
        b'{"schemaVersion": 1, "traceEvents":' + BLANKS + b"[" + BLANKS + ONE + BLANKS + b"]}" + BLANKS,
        b'{"schemaVersion": 1, "traceEvents": [%s' % ONE + BLANKS + b"," + BLANKS + ONE + b"]}",
    ],
    ids=["before-the-document", "before-keys", "before-values", "around-the-list", "between-events"],
)
def test_blanks_leave_the_window_while_they_are_read(tmp_path: Path, held: list[int], text: bytes) -> None:
    file = ChromeFile(raw(tmp_path / "trace.json", text))
    events = [event for batch in file.batches() for event in batch]
    assert {event.name for event in events} == {"aten::mm"}
    assert file.header["schemaVersion"] == 1
    assert len(held) > 10
    assert max(held) < 4 << 20


def test_the_scanner_hands_long_blanks_over_instead_of_growing(
    tmp_path: Path, held: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("perfkit_core.readers.scanner.chunks.CHUNK_BYTES", 1 << 16)
    path = write(tmp_path / "trace.json", [event("aten::mm", 10 * number) for number in range(30_000)])
    text = path.read_bytes()
    middle = text.index(b"},", len(text) // 2) + 2
    trace = load(raw(tmp_path / "blanks.json", text[:middle] + BLANKS + text[middle:]))
    assert len(trace) == 30_000
    assert max(held) < 8 << 20


@pytest.mark.parametrize("end", [b"x", b"}", b", x"])
def test_searches_for_events_are_linear_in_blanks(end: bytes) -> None:
    text = b'{"name": "a" }' + BLANKS[: 1 << 20] + end
    assert repair.next_event(text, 0, last=True) is None
    assert repair.next_beginning(text, 1, last=True) is None
    assert repair.next_beginning(b"x]" + BLANKS[: 1 << 20] + end, 0, last=True) is None


def test_a_header_key_is_linear_in_blanks(tmp_path: Path) -> None:
    text = b'{"traceEvents": [%s]' % ONE + BLANKS[: 1 << 19] + b"}"
    assert len(load(raw(tmp_path / "trace.json", text))) == 1
