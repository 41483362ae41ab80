"""Tests that decimal text becomes the same integer nanoseconds as ``decimal.Decimal`` computes."""

from __future__ import annotations

from decimal import ROUND_HALF_EVEN, Context, Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfkit_core.base.algorithms.decimals import to_ns
from perfkit_core.errors import SourceError

LIMIT = 9_000_000_000 * 10**9
EXACT = Context(prec=80)


def expected(text: str) -> int:
    return int(Decimal(text).scaleb(3, EXACT).quantize(Decimal(1), rounding=ROUND_HALF_EVEN, context=EXACT))


@st.composite
def numbers(draw: st.DrawFn) -> str:
    """Draw integers, decimal numbers and numbers with an exponent, of any length that fits 64 bits."""
    whole = draw(st.integers(0, 10**15))
    fraction = draw(st.text("0123456789", max_size=18))
    exponent = draw(st.sampled_from(["", "", "", "e0", "E-3", "e-9", "e-12"]))
    return f"{draw(st.sampled_from(['', '-']))}{whole}{'.' + fraction if fraction else ''}{exponent}"


@given(st.lists(numbers(), min_size=1, max_size=5))
def test_any_decimal_equals_the_decimal_module(texts: list[str]) -> None:
    texts = [text for text in texts if abs(expected(text)) < LIMIT]
    assert to_ns([text.encode() for text in texts]).tolist() == [expected(text) for text in texts]


@given(st.integers(0, 9_200_000_000_000_000_000))
def test_epoch_nanoseconds_survive_as_decimal_microseconds(ns: int) -> None:
    """Kineto writes times in this form. A float64 of 1.7e15 µs is off by up to 125 ns."""
    text = f"{ns // 1000}.{ns % 1000:03d}"
    assert to_ns([text.encode(), text, f'"{text}"']).tolist() == [ns] * 3


@pytest.mark.parametrize(
    ("text", "ns"),
    [
        ("1419247332500.684", 1419247332500684),
        ("1700000000123456.789", 1700000000123456789),
        ("2.7700000209733844", 2770),
        ("0.0005", 0),
        ("0.0015", 2),
        ("0.00050000000000000000000000000001", 1),
        ("1e3", 1_000_000),
        ("1.5E-3", 2),
        ("1e-100", 0),
        ("1795250231E-78320561", 0),  # Arrow crashes
        ("1e-2147483649", 0),
        ("-0.25", -250),
        ("0", 0),
    ],
)
def test_examples(text: str, ns: int) -> None:
    assert to_ns([text]).tolist() == [ns]


def test_missing_is_zero_and_order_is_kept() -> None:
    assert to_ns([b"2", None, b'"1.5"']).tolist() == [2000, 0, 1500]
    assert to_ns([]).tolist() == []


@pytest.mark.parametrize("text", ["abc", "", "1.2.3", "NaN", "Infinity", "1e400", "99999999999999999999", "null", "{}"])
def test_invalid_numbers_raise_source_error(text: str) -> None:
    with pytest.raises(SourceError, match="timestamp"):
        to_ns(["1", text])
