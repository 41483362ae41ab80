r"""Events that a profiler wrote as invalid JSON.

Kineto and Paddle do not escape names: a quote, backslash or line break in one makes the event invalid. The name ends
where the next key of the event begins, so its text can be found and escaped.
"""

from __future__ import annotations

import itertools
import re
from typing import Final

import msgspec

_MAX_NAME_BYTES: Final = 1 << 14
_ENDS_TRIED: Final = 16
_NAME = re.compile(rb'"name"\s*:\s*"')
_NAME_END = re.compile(rb'"(?:\s*,\s*"(?:pid|tid|ts|dur|ph|cat|args|id|s|bp|cname)"\s*:\s*["\d{\[-]|\s*\})')
_END = re.compile(rb"\}(?=\s*(?:,\s*\{|,?\s*\]))")
_SOUND_ESCAPES = re.compile(rb'(?:[^"\\\x00-\x1f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*')


def next_event(data: bytes, start: int) -> tuple[bytes, int, bool] | None:
    """The event that begins at ``start``: its (repaired) text, where it ends, whether it was repaired.

    None when no end is in sight. When no repair helps, the text up to the first likely end is returned as it is.
    """
    if data[start : start + 1] != b"{":
        return None
    first_end = None
    name = _name(data, start)
    for match in itertools.islice(_END.finditer(data, start), _ENDS_TRIED):
        end = match.end()
        text = data[start:end]
        if _valid(text):
            return text, end, False
        mended = _mended(data, start, end, name)
        if mended != text and _valid(mended):
            return mended, end, True
        first_end = first_end or end
    return (data[start:first_end], first_end, False) if first_end else None


def _name(data: bytes, start: int) -> tuple[int, int] | None:
    """Where the name of the event begins and ends: it ends where the next key begins."""
    opening = _NAME.search(data, start, start + _MAX_NAME_BYTES)
    if opening is None:
        return None
    closing = _NAME_END.search(data, opening.end(), opening.end() + _MAX_NAME_BYTES)
    return (opening.end(), closing.start()) if closing else None


def _valid(text: bytes) -> bool:
    try:
        msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return False
    return True


def _mended(data: bytes, start: int, end: int, name: tuple[int, int] | None) -> bytes:
    """Escape what is not escaped in the name, and replace bytes that are not UTF-8."""
    if name is None or name[1] >= end:
        return _unicode(data[start:end])
    first, last = name
    return _unicode(data[start:first]) + _escaped(_unicode(data[first:last])) + _unicode(data[last:end])


def _unicode(text: bytes) -> bytes:
    return text.decode("utf-8", "replace").encode()


def _escaped(name: bytes) -> bytes:
    if _SOUND_ESCAPES.fullmatch(name):  # the name is JSON already; the fault is elsewhere
        return name
    return msgspec.json.encode(name.decode())[1:-1]
