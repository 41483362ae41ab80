"""Repair of events that a profiler wrote as invalid JSON.

- Kineto and Paddle do not escape quotes, backslashes and line breaks in names. A name ends where the event's next key
  begins. The text up to there is escaped.
- Words without quotes as values (``inf``, ``nan``, ``N/A``) become text.

Other damage is not repaired. An event is also left as it is if its name would contain a key of an event, or if it would
extend into the next event.
"""

from __future__ import annotations

import itertools
import math
import re
from typing import Final

import msgspec

from perfkit_core.readers.chrome.dialect import DECODER, UNDECODABLE, ChromeEvent

_MAX_NAME_BYTES: Final = 1 << 14
_ENDS_TRIED: Final = 16
_NAME = re.compile(rb'"name"\s*:\s*"')
_ESCAPED_TEXT: Final = rb'(?:[^"\\\x00-\x1f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*'
_SOUND_NAME = re.compile(_ESCAPED_TEXT + rb'"\s*,\s*"[^"\\]*"\s*:')
_NEXT_KEY = re.compile(rb'"\s*,\s*"(?:pid|tid|ts|dur|ph|cat|args|id|s|bp|cname)"\s*:\s*["\d{\[-]')
_LAST = re.compile(rb'"\s*\}\Z')
_KEY = re.compile(rb'"(?:ph|cat|name|pid|tid|ts|dur|args)"\s*:')
_STRING: Final = rb'"(?:[^"\\\x00-\x1f]|\\.)*"'
_ESCAPE = re.compile(
    rb"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(\\u[dD][89a-fA-F][0-9a-fA-F]{2})|\\.", re.DOTALL
)
"""Matches a pair of surrogates, a lone surrogate (group 1), or any other escape."""
_WORD: Final = rb"-?(?!(?:true|false|null)\b)[A-Za-z_][\w./+#-]*+(?:\(\w*\))?"
UNQUOTED_WORD: Final = re.compile(_WORD)
_NUMBER: Final = rb"-?\d[\d.eE+-]*"
_TOKEN = re.compile(rb"[\s,:]+|" + _STRING + rb"|" + _NUMBER + rb"|true|false|null|" + _WORD + rb"|([{\[])|([}\]])")
_SCALAR = re.compile(_STRING + rb"|true|false|null|(" + _WORD + rb"|" + _NUMBER + rb")")
_FIRST_KEY = re.compile(rb'\{\s*"\w+"')
_BETWEEN = re.compile(rb"(?<!\s)\s*+,\s*+(?=\{)")
_OPEN_STRING = re.compile(rb'"(?:[^"\\\x00-\x1f]|\\.)*\\?')
_CLOSED_BY: Final = {b"{": b"}", b"[": b"]"}
# Possessive quantifiers (*+) give back no blanks, so that the search stays linear in long runs of blanks.
_END = re.compile(rb"\}(?=\s*+(?:\]|,\s*+[\{\]]))")
_BEGINNING = re.compile(rb'[^\s\[:]\s*(\{\s*"(?:ph|cat|name|pid|tid|ts|dur)"\s*:)')
"""Matches the beginning of an event. Objects inside an event do not match, because they follow a ``:`` or a ``[``."""
_END_OF_LIST = re.compile(rb'[^\s\w"]\s*+(\])\s*+(?:,\s*+"[^"\\]*+"\s*+:|\}?\s*+\Z)')


def next_event(data: bytes, start: int, last: bool) -> tuple[bytes, int, bool] | None:
    """Return (text, end, repaired) for the event that begins at ``start``. Return None if its end is not in ``data``.
    If the event is invalid and cannot be repaired, ``text`` is the unchanged text before the next event. ``last`` is
    true if the file ends with ``data``."""
    if data[start : start + 1] != b"{":
        return None
    ends = [match.end() for match in itertools.islice(_END.finditer(data, start), _ENDS_TRIED)]
    for end in ends:  # all first: the end of an object in a sound event is not worth a repair
        if _decoded(data[start:end]) is not None:
            return data[start:end], end, False
    for count, end in enumerate(ends, start=1):
        repaired = _repaired(data[start:end], _NEXT_KEY)
        if repaired:
            return repaired, end, True
        if _event_follows(data, start, end):
            return _unusual_event(data, start, ends[:count])
    complete = last or len(ends) == _ENDS_TRIED
    return _unusual_event(data, start, ends[:1] if complete else []) if ends else None


def next_beginning(data: bytes, start: int, last: bool) -> int | None:
    """Skip stray text, and return the position where the next event begins. If there is no event and no more data will
    be read (``last``), return the position of the ``]`` that ends the list of events. Otherwise return None."""
    beginning = _BEGINNING.search(data, start)
    if beginning:
        return beginning.start(1)
    closing = _END_OF_LIST.search(data, start) if last else None
    return closing.start(1) if closing else None


def value_end(data: bytes) -> int | None:
    """Return the end of the JSON value at the beginning of ``data``, or None if the value is not complete. Words
    without quotes are accepted."""
    if data[:1] in (b"{", b"["):
        return _closing(data, 0) or None
    scalar = _SCALAR.match(data)
    return scalar.end() if scalar else None


def _unusual_event(data: bytes, start: int, ends: list[int]) -> tuple[bytes, int, bool] | None:
    """Return (text, end, repaired) for an event whose end :func:`next_event` did not find. For example, its last key
    is a broken "name". ``ends`` are the positions where the event may end. The list is empty if they are unknown."""
    closing = _closing(data, start)
    if closing is None:
        return None
    text = data[start:closing]
    if text:
        try:
            DECODER.decode(b"[" + text + b"]")
        except RecursionError:  # the event is nested too deep, and repair would not help
            return text, closing, False
        except UNDECODABLE:
            pass
        else:
            return text, closing, False
    for end in [closing] if text else ends:
        repaired = _repaired(data[start:end], _LAST)
        if repaired:
            return repaired, end, True
    if not ends:
        return None
    # Without its closing brace, the event reaches to the end of a later event. Cut it before the first valid event.
    for gap in _BETWEEN.finditer(data, start, ends[-1]):
        events = _decoded(data[gap.end() : ends[-1]])
        if events and all(event.ph is not None for event in events):
            return data[start : gap.start()], gap.start(), False
    return data[start : ends[-1]], ends[-1], False


def _event_follows(data: bytes, start: int, end: int) -> bool:
    """Return whether the next object after ``end`` is an event: its first key is that of the event at ``start``, or it
    has the key ``ph``. Objects inside events have no ``ph``."""
    first_key, gap = _FIRST_KEY.match(data, start), _BETWEEN.match(data, end)
    if gap is None:
        return False
    if first_key and data.startswith(first_key[0], gap.end()):
        return True
    events = _decoded(data[gap.end() : _closing(data, gap.end()) or gap.end()])
    return bool(events and events[0].ph is not None)


def _closing(data: bytes, start: int) -> int | None:
    """Return the end of the object or list at ``start``. Return ``start`` if the text is not JSON, and None if the
    object or list has no end."""
    opened: list[bytes] = []
    named, at = True, start
    while at < len(data):
        token = _TOKEN.match(data, at)
        if token is None:
            return None if _OPEN_STRING.fullmatch(data, at) else start
        if token[1]:
            if opened and opened[-1] == b"{" and not named:  # a value without a key, so a closing brace is missing
                return start
            opened.append(token[1])
        elif token[2] and _CLOSED_BY[opened.pop()] != token[2]:
            return start
        named, at = token[0].strip() == b":", token.end()
        if not opened:
            return at
    return None


def _decoded(text: bytes) -> list[ChromeEvent] | None:
    try:
        return DECODER.decode(b"[" + text + b"]")
    except UNDECODABLE:
        return None


def _repaired(text: bytes, after_name: re.Pattern[bytes]) -> bytes | None:
    """Escape the name and mend the values of an event. Return None if the text is still not valid JSON."""
    repaired = text
    opening = _NAME.search(text, 0, _MAX_NAME_BYTES)
    if opening and not _SOUND_NAME.match(text, opening.end()):
        first = opening.end()
        closing = after_name.search(text, first, first + _MAX_NAME_BYTES)
        if closing and not _KEY.search(text, first, closing.start()):
            name = msgspec.json.encode(text[first : closing.start()].decode("utf-8", "replace"))[1:-1]
            repaired = text[:first] + name + text[closing.start() :]
    repaired = values_mended(repaired)
    return repaired if repaired != text and _decoded(repaired) is not None else None


def values_mended(text: bytes) -> bytes:
    """Return the mended text. Words without quotes, such as ``nan`` and ``N/A``, become strings. So do numbers that are
    not finite. Bytes that are not UTF-8, and escaped lone surrogates, become the replacement character (U+FFFD)."""
    text = text.decode("utf-8", "replace").encode()
    text = _ESCAPE.sub(lambda escape: b"\\ufffd" if escape[1] else escape[0], text)
    return _SCALAR.sub(_as_string, text)


def _as_string(token: re.Match[bytes]) -> bytes:
    if not token[1]:
        return token[0]
    if UNQUOTED_WORD.fullmatch(token[0]):
        return b'"' + token[0] + b'"'
    try:
        return token[0] if math.isfinite(float(token[0])) else b'"' + token[0] + b'"'
    except ValueError:
        return token[0]
