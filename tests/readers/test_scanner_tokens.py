"""Tests of the scanner's tokens against msgspec and Decimal, and that no byte after the buffer is read."""

from __future__ import annotations

import json

import msgspec
import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from perfkit_core.base.algorithms.decimals import to_ns
from perfkit_core.base.runtime import build
from perfkit_core.readers.scanner import members, tokens
from perfkit_core.readers.scanner.scanner import padded

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**19), 10**19) | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=12),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=12,
)  # fmt: skip
# Python code cannot call these functions, only other compiled functions can: numba compiles them for the tests
VALUE = build.dispatcher(tokens.value)
MICROSECONDS = build.dispatcher(tokens.microseconds)
BEFORE_DURATION = build.dispatcher(members.before_duration)
NUMBER = st.from_regex(r"-?(0|[1-9][0-9]{0,20})(\.[0-9]{1,20})?([eE][+-]?[0-9]{1,2})?", fullmatch=True)


def scanned(text: bytes) -> tuple[int, bytes, bool]:
    """Return the end, the written text and ``odd`` for the value at the beginning of a text."""
    buffer, out = padded(text), np.zeros(len(text) + 16, np.uint8)
    end, to, odd = VALUE(buffer.ctypes.data, 0, out.ctypes.data, 0)
    return end, out[:to].tobytes(), odd


@given(JSON, st.sampled_from([None, 1, 8]), st.booleans())
def test_values_are_written_again_as_msgspec_writes_them(value: object, indent: int | None, ascii_only: bool) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass")
    end, again, odd = scanned(text + b"  ,")
    assert end == len(text)
    if not odd:
        assert again == msgspec.json.encode(msgspec.json.decode(text))


@given(NUMBER)
@example("0.00001")
@example("464.592590")
@example("0.30000000000000004")
@example("123456789012345678")
@example("-0")
@example("0.000")
def test_numbers_that_are_not_odd_are_exact(text: str) -> None:
    end, again, odd = scanned(text.encode() + b"]")
    assert end == len(text)
    if not odd:
        assert again == msgspec.json.encode(msgspec.json.decode(text))


def test_usual_numbers_are_not_odd() -> None:
    for text in ("0", "7", "-12", "1712195495622745963", "156.8", "464.592590", "0.0001", "0.0", "100.0", "-3.25"):
        assert scanned(text.encode()) == (len(text), msgspec.json.encode(json.loads(text)), len(text) > 18)


def test_numbers_end_before_any_other_byte() -> None:
    for other in {*range(256)} - {*b"0123456789.eE"}:
        assert scanned(b"17" + bytes([other])) == (2, b"17", False)


@given(st.text(alphabet='{}[]",:\\ 0129.eE+-tfnrula', max_size=20))
def test_invalid_json_has_no_end(text: str) -> None:
    """A value that ends with the text is JSON for msgspec too. Every text that msgspec accepts has an end."""
    raw = text.encode()
    end, _, _ = scanned(raw)
    try:
        msgspec.json.decode(raw)
        valid = True
    except (msgspec.DecodeError, msgspec.ValidationError):
        valid = False
    if valid:
        assert end == len(raw.rstrip()) or raw[:1] in b" "
    elif end == len(raw) and raw:
        assert scanned(raw)[2], "only text that is odd may turn out to be no JSON"


@given(NUMBER)
@example("1712195495622745.963")
@example("2.7700000209733844")
@example("0.0005")
@example("0.0015")
@example("1.00050000000000000001")
@example("9223372036854775.807")
@example("9223372036854775.808")
@example("-1.0005")
def test_microseconds_are_those_of_decimal(text: str) -> None:
    buffer = padded(text.encode() + b",")
    end, ns = MICROSECONDS(buffer.ctypes.data, 0)
    if end >= 0:
        assert end == len(text)
        assert ns == to_ns([text])[0]


def test_usual_times_need_no_reference() -> None:
    for text in ("1712195495622745.963", "1623142624338553", "0.040", "2.7700000209733844", "5639"):
        buffer = padded(text.encode() + b",")
        assert MICROSECONDS(buffer.ctypes.data, 0)[0] == len(text)


def test_durations_are_cut_off_names() -> None:
    cases = {"matmul[12.345 us]": "matmul", "a[1 s]": "a", "a[1 ns]": "a", "[3 ms]": "", "a[1.5 us][2 us]": "a[1.5 us]",
             "a": None, "a[b us]": None, "a[1. us]": None, "a[.5 us]": None, "a[1us]": None, "1 us]": None, "": None,
             "a[1 us] ": None, "a[1 ks]": None}  # fmt: skip
    for name, bare in cases.items():
        buffer = padded(name.encode())
        end = BEFORE_DURATION(buffer.ctypes.data, 0, len(name))
        assert (None if end < 0 else name[:end]) == bare
