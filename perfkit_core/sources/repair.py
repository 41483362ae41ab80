r"""Events that a profiler wrote as invalid JSON.

Kineto and Paddle do not escape names: a quote, backslash or line break in one makes the event invalid. The name ends
where the next key of the event begins, so its text can be found and escaped.
"""

from __future__ import annotations

import re

import msgspec

_NAME = re.compile(
    rb'("name"\s*:\s*")(.*?)("\s*,\s*"(?:pid|tid|ts|dur|ph|cat|args|id|s|bp|cname)"\s*:\s*["\d{\[-]|"\s*\})', re.DOTALL
)
_END = re.compile(rb"\}(?=\s*(?:,\s*\{|,?\s*\]))")
_SOUND_ESCAPES = re.compile(rb'(?:[^"\\\x00-\x1f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*')


def next_event(data: bytes, start: int) -> tuple[bytes, int, bool] | None:
    """The event that begins at ``start``: its (repaired) text, where it ends, whether it was repaired.

    None when no end is in sight. When no repair helps, the text up to the first likely end is returned as it is.
    """
    if data[start : start + 1] != b"{":
        return None
    first_end = None
    for count, match in enumerate(_END.finditer(data, start)):
        text = data[start : match.end()]
        if _valid(text):
            return text, match.end(), False
        mended = _escape_name(text)
        if mended != text and _valid(mended):
            return mended, match.end(), True
        first_end = first_end or match.end()
        if count >= 16:
            break
    return (data[start:first_end], first_end, False) if first_end else None


def _valid(text: bytes) -> bool:
    try:
        msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return False
    return True


def _escape_name(text: bytes) -> bytes:
    """Escape what is not escaped in the name, and replace bytes that are not UTF-8."""
    clean = text.decode("utf-8", "replace").encode()
    return _NAME.sub(lambda match: match[1] + _escaped(match[2]) + match[3], clean, count=1)


def _escaped(name: bytes) -> bytes:
    if _SOUND_ESCAPES.fullmatch(name):  # the name is JSON already; the fault is elsewhere
        return name
    return msgspec.json.encode(name.decode())[1:-1]
