"""What a page carries beside its text: deflated, and in letters. ``page.unpacked`` of its script reads it."""

from __future__ import annotations

import base64
import zlib


def packed(data: bytes | str) -> str:
    """Base64 of the deflated bytes, or of the text in UTF-8: letters that mean nothing in HTML."""
    raw = data.encode() if isinstance(data, str) else data
    return base64.b64encode(zlib.compress(raw, 6)).decode("ascii")
