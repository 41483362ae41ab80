"""Events that a profiler wrote as invalid JSON.

Kineto and Paddle do not escape names: a quote, backslash or line break in one makes the event invalid. The name ends
where the next key of the event begins, so its text can be found and escaped. They also print numbers that JSON does not
have (``inf``, ``nan``): those are kept as text. Any other damage is left: what is mended must not hide it, so a mended
name holds no key of an event, and a mended event does not reach into the next one.
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
"""Two halves of a character, a half alone (the group), any other escape."""
_NO_FINITE: Final = rb"[iI]nf(?:inity)?|[nN]a[nN]"
NO_JSON_NUMBER: Final = re.compile(rb"-?(?:" + _NO_FINITE + rb")")
_NUMBER: Final = rb"-?(?:\d[\d.eE+-]*|" + _NO_FINITE + rb")"
_TOKEN = re.compile(rb"[\s,:]+|" + _STRING + rb"|" + _NUMBER + rb"|true|false|null|([{\[])|([}\]])")
_STRING_OR_NUMBER = re.compile(_STRING + rb"|(" + _NUMBER + rb")")
_FIRST_KEY = re.compile(rb'\{\s*"\w+"')
_BETWEEN = re.compile(rb"\s*,\s*(?=\{)")
_OPEN_STRING = re.compile(rb'"(?:[^"\\\x00-\x1f]|\\.)*\\?')
_CLOSED_BY: Final = {b"{": b"}", b"[": b"]"}
_END = re.compile(rb"\}(?=\s*(?:,\s*\{|,?\s*\]))")
_BEGINNING = re.compile(rb'[^\s\[:]\s*(\{\s*"(?:ph|cat|name|pid|tid|ts|dur)"\s*:)')
"""An object that is neither a member's value nor the first one of a list within an event."""
_END_OF_LIST = re.compile(rb'[^\s\w"]\s*(\])\s*(?:,\s*"[^"\\]*"\s*:|\}?\s*\Z)')


def next_event(data: bytes, start: int, whole: bool) -> tuple[bytes, int, bool] | None:
    """The event that begins at ``start``: its (repaired) text, where it ends, whether it was repaired.

    None when no end is in sight; ``whole`` says that nothing follows ``data``. When no repair helps, the text up to the
    next event is returned as it is.
    """
    if data[start : start + 1] != b"{":
        return None
    ends = [match.end() for match in itertools.islice(_END.finditer(data, start), _ENDS_TRIED)]
    border = None
    for end in ends:
        text = data[start:end]
        if _valid(text):
            return text, end, False
        mended = None if border else _mended(text, _NEXT_KEY)
        if mended:
            return mended, end, True
        border = border or (end if _event_follows(data, start, end) else None)
    if not border and ends and (whole or len(ends) == _ENDS_TRIED):
        border = ends[0]
    return _unusual_event(data, start, [end for end in ends if border and end <= border]) if ends else None


def next_beginning(data: bytes, start: int, whole: bool) -> int | None:
    """Where, behind text that is no event, the next event begins, or, where ``whole`` says that nothing follows
    ``data``, the list of events ends. None: not in sight."""
    beginning = _BEGINNING.search(data, start)
    if beginning:
        return beginning.start(1)
    closing = _END_OF_LIST.search(data, start) if whole else None
    return closing.start(1) if closing else None


def value_end(data: bytes) -> int | None:
    """Behind the value that ``data`` begins with, which may hold numbers that JSON does not have; None where it is no
    such value, or not whole."""
    if data[:1] in (b"{", b"["):
        return _closing(data, 0) or None
    scalar = _STRING_OR_NUMBER.match(data)
    return scalar.end() if scalar else None


def _unusual_event(data: bytes, start: int, ends: list[int]) -> tuple[bytes, int, bool] | None:
    """Sound, but with so many objects inside that its end was not tried; with the name as its last key; or damaged.
    The last of ``ends`` is where the next event begins; there are none where that is not in sight."""
    closing = _closing(data, start)
    if closing is None:
        return None
    text = data[start:closing]
    if text and (_valid(text) or _too_deep(text)):
        return text, closing, False
    for end in [closing] if text else ends:
        mended = _mended(data[start:end], _LAST)
        if mended:
            return mended, end, True
    if not ends:
        return None
    end = _neighbour(data, start, ends[-1]) or ends[-1]
    return data[start:end], end, False


def _neighbour(data: bytes, start: int, end: int) -> int | None:
    """In front of the sound event that ends at ``end`` and begins behind ``start``, whose own closing brace is missing;
    None where there is none."""
    for gap in _BETWEEN.finditer(data, start, end):
        found = _decoded(data[gap.end() : end])
        if found and all(event.ph is not None for event in found):
            return gap.start()
    return None


def _event_follows(data: bytes, start: int, end: int) -> bool:
    """Whether what begins behind ``end`` begins as this event does, or is a sound event (objects inside are not)."""
    first_key, gap = _FIRST_KEY.match(data, start), _BETWEEN.match(data, end)
    if gap is None:
        return False
    if first_key and data.startswith(first_key[0], gap.end()):
        return True
    found = _decoded(data[gap.end() : _closing(data, gap.end()) or gap.end()])
    return bool(found and found[0].ph is not None)


def _closing(data: bytes, start: int) -> int | None:
    """Behind the brace that closes the one at ``start``; ``start`` when this is no JSON, None when the data ends."""
    opened: list[bytes] = []
    named, at = True, start
    while at < len(data):
        token = _TOKEN.match(data, at)
        if token is None:
            return None if _OPEN_STRING.fullmatch(data, at) else start
        if token[1]:
            if opened and opened[-1] == b"{" and not named:  # a value without a key: the brace before it is missing
                return start
            opened.append(token[1])
        elif token[2] and _CLOSED_BY[opened.pop()] != token[2]:
            return start
        named, at = token[0].strip() == b":", token.end()
        if not opened:
            return at
    return None


def _valid(text: bytes) -> bool:
    return _decoded(text) is not None


def _decoded(text: bytes) -> list[ChromeEvent] | None:
    try:
        return DECODER.decode(b"[" + text + b"]")
    except UNDECODABLE:
        return None


def _too_deep(text: bytes) -> bool:
    """Sound as far as it was read: nothing has to be mended, and its end is known."""
    try:
        DECODER.decode(b"[" + text + b"]")
    except RecursionError:
        return True
    except UNDECODABLE:
        pass
    return False


def _mended(text: bytes, behind_name: re.Pattern[bytes]) -> bytes | None:
    """Valid JSON: with everything escaped that is not escaped in the name, numbers that JSON does not have as text, and
    without bytes that are not UTF-8 and halves of characters. None where that does not help."""
    opening = _NAME.search(text, 0, _MAX_NAME_BYTES)
    unsound = opening and not _SOUND_NAME.match(text, opening.end())
    named = _name_escaped(text, opening.end(), behind_name) if opening and unsound else None
    mended = values_mended(named or text)
    return mended if mended != text and _valid(mended) else None


def values_mended(text: bytes) -> bytes:
    """With numbers that JSON does not have as text, and without bytes that are not UTF-8 and halves of characters."""
    return _numbers_as_text(_characters(_unicode(text)))


def _name_escaped(text: bytes, first: int, behind_name: re.Pattern[bytes]) -> bytes | None:
    """With what stands between ``first`` and the quote that ends the name escaped; None where that is no name."""
    closing = behind_name.search(text, first, first + _MAX_NAME_BYTES)
    if closing is None or _KEY.search(text, first, closing.start()):
        return None
    name = _unicode(text[first : closing.start()])
    return text[:first] + msgspec.json.encode(name.decode())[1:-1] + text[closing.start() :]


def _numbers_as_text(text: bytes) -> bytes:
    return _STRING_OR_NUMBER.sub(lambda found: _quoted(found[0]) if found[1] else found[0], text)


def _quoted(number: bytes) -> bytes:
    try:
        return number if math.isfinite(float(number)) else b'"' + number + b'"'
    except ValueError:
        return number


def _unicode(text: bytes) -> bytes:
    return text.decode("utf-8", "replace").encode()


def _characters(text: bytes) -> bytes:
    """With the replacement character for surrogates that are escaped one without the other."""
    return _ESCAPE.sub(lambda found: b"\\ufffd" if found[1] else found[0], text)
