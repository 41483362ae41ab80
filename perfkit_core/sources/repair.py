r"""Events that a profiler wrote as invalid JSON.

Kineto and Paddle do not escape names: a quote, backslash or line break in one makes the event invalid. The name ends
where the next key of the event begins, so its text can be found and escaped.
"""

from __future__ import annotations

import itertools
import re
from typing import Final

import msgspec

from perfkit_core.sources.chrome_event import DECODER, UNDECODABLE

_MAX_NAME_BYTES: Final = 1 << 14
_ENDS_TRIED: Final = 16
_NAME = re.compile(rb'"name"\s*:\s*"')
_NEXT_KEY = re.compile(rb'"\s*,\s*"(?:pid|tid|ts|dur|ph|cat|args|id|s|bp|cname)"\s*:\s*["\d{\[-]')
_NO_MORE_KEYS = re.compile(rb'"\s*\}')
_TOKEN = re.compile(rb'[\s,:]+|"(?:[^"\\\x00-\x1f]|\\.)*"|-?\d[\d.eE+-]*|true|false|null|([{\[])|([}\]])')
_FIRST_KEY = re.compile(rb'\{\s*"\w+"')
_BETWEEN = re.compile(rb"\s*,\s*")
_OPEN_STRING = re.compile(rb'"(?:[^"\\\x00-\x1f]|\\.)*\\?')
_END = re.compile(rb'"(?:\s*,\s*"(?:pid|tid|ts|dur|ph|cat|args|id|s|bp|cname)"\s*:\s*["\d{\[-]|\s*\})')
_END = re.compile(rb"\}(?=\s*(?:,\s*\{|,?\s*\]))")
_SOUND_ESCAPES = re.compile(rb'(?:[^"\\\x00-\x1f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*')


def next_event(data: bytes, start: int) -> tuple[bytes, int, bool] | None:
    """The event that begins at ``start``: its (repaired) text, where it ends, whether it was repaired.

    None when no end is in sight. When no repair helps, the text up to the first likely end is returned as it is.
    """
    if data[start : start + 1] != b"{":
        return None
    ends = [match.end() for match in itertools.islice(_END.finditer(data, start), _ENDS_TRIED)]
    if not ends:
        return None
    for end in ends:
        text = data[start:end]
        if _valid(text):
            return text, end, False
        mended = _mended(data, start, end, _NEXT_KEY)
        if mended != text and _valid(mended):
            return mended, end, True
    return _unusual_event(data, start, ends)


def _unusual_event(data: bytes, start: int, ends: list[int]) -> tuple[bytes, int, bool] | None:
    """Sound, but with so many objects inside that none of ``ends`` is its end; or with the name as its last key."""
    closing = _closing(data, start)
    if closing is None:
        return None
    if closing > start and (_valid(data[start:closing]) or _too_deep(data[start:closing])):
        return data[start:closing], closing, False
    for end in ends:
        mended = _mended(data, start, end, _NO_MORE_KEYS)
        if _valid(mended):
            return mended, end, True
    end = _next_alike(data, start, ends)
    return data[start:end], end, False


def _next_alike(data: bytes, start: int, ends: list[int]) -> int:
    """The first end behind which an event begins as this one does (objects inside it begin otherwise)."""
    first_key = _FIRST_KEY.match(data, start)
    for end in ends:
        gap = _BETWEEN.match(data, end)
        if first_key and gap and data.startswith(first_key[0], gap.end()):
            return end
    return ends[0]


def _closing(data: bytes, start: int) -> int | None:
    """Behind the brace that closes the one at ``start``; ``start`` when this is no JSON, None when the data ends."""
    depth, at = 0, start
    while at < len(data):
        token = _TOKEN.match(data, at)
        if token is None:
            return None if _OPEN_STRING.fullmatch(data, at) else start
        depth += (token[1] is not None) - (token[2] is not None)
        at = token.end()
        if not depth:
            return at
    return None


def _valid(text: bytes) -> bool:
    try:
        DECODER.decode(b"[" + text + b"]")
    except UNDECODABLE:
        return False
    return True


def _too_deep(text: bytes) -> bool:
    """Sound as far as it was read: nothing has to be mended, and its end is known."""
    try:
        DECODER.decode(b"[" + text + b"]")
    except RecursionError:
        return True
    except UNDECODABLE:
        pass
    return False


def _mended(data: bytes, start: int, end: int, behind_name: re.Pattern[bytes]) -> bytes:
    """With everything escaped that is not escaped in the name, and without bytes that are not UTF-8."""
    opening = _NAME.search(data, start, min(end, start + _MAX_NAME_BYTES))
    closing = opening and behind_name.search(data, opening.end(), opening.end() + _MAX_NAME_BYTES)
    if not opening or not closing or closing.start() >= end:
        return _unicode(data[start:end])
    first, last = opening.end(), closing.start()
    return _unicode(data[start:first]) + _escaped(_unicode(data[first:last])) + _unicode(data[last:end])


def _unicode(text: bytes) -> bytes:
    return text.decode("utf-8", "replace").encode()


def _escaped(name: bytes) -> bytes:
    if _SOUND_ESCAPES.fullmatch(name):  # the name is JSON already; the fault is elsewhere
        return name
    return msgspec.json.encode(name.decode())[1:-1]
