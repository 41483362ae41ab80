"""One event of a Chrome trace as the reference decodes it."""

from __future__ import annotations

from typing import Any, Final

import msgspec


class ChromeEvent(msgspec.Struct, gc=False):
    """One event as written. ``ts`` and ``dur`` stay text, so that no digit is lost."""

    ph: Any = None
    name: Any = None
    cat: Any = None
    ts: msgspec.Raw = msgspec.Raw(b"0")
    dur: msgspec.Raw = msgspec.Raw(b"0")
    pid: Any = None
    tid: Any = None
    args: Any = None


DECODER: Final = msgspec.json.Decoder(list[ChromeEvent])
UNDECODABLE: Final = (msgspec.DecodeError, UnicodeDecodeError)
"""What decoding raises for text that is not JSON."""
