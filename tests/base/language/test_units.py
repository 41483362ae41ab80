"""Numbers for people: three digits, a suitable unit, and never 0 for a nonzero number."""

from __future__ import annotations

import re
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfkit_core.base.language import units
from perfkit_core.base.language.units import (
    FAMILIES,
    OPERATIONS,
    RATES,
    SHARES,
    SIZES,
    TIMES,
    Family,
    column_format,
    column_units,
    format_bytes,
    format_count,
    format_duration,
    format_in,
    format_quantity,
    format_range,
    format_ratio,
    parse_quantity,
)
from perfkit_core.errors import UsageError

MS = TIMES.units[2]
NUMBERS = st.floats(-1e18, 1e18, allow_nan=False).filter(lambda value: not value or abs(value) > 1e-30)
QUANTITIES = [TIMES, SIZES, RATES, SHARES, OPERATIONS, None]


def shown(value: float, family: Family | None) -> str:
    if family is None:
        return format_count(value)
    return format_ratio(value) if family is SHARES else format_quantity(value, family)


def half_of_the_last_digit(text: str, family: Family | None) -> Fraction:
    number, unit = re.fullmatch(r"(-?[\d,.]+) ?(\D*)", text).groups()  # type: ignore[union-attr]
    size = Fraction(units.writable_units(family).get(unit, 1.0))
    decimals = len(number.partition(".")[2])
    return size / 10**decimals / 2


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        (0, "0 ns"), (0.3, "<1 ns"), (5, "5 ns"), (82, "82 ns"), (999.4, "999 ns"), (999.6, "1.00 µs"),
        (82_000, "82.0 µs"), (999_499, "999 µs"), (999_500, "1.00 ms"), (18_421_000, "18.4 ms"),
        (1_685_970_000, "1.69 s"), (4_321e9, "4,321 s"), (-1_500, "-1.50 µs"), (-0.2, ">-1 ns"),
    ],
)  # fmt: skip
def test_durations(ns: float, text: str) -> None:
    assert format_duration(ns) == text


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"), (12, "12 B"), (1023, "1,023 B"), (1024, "1.00 KiB"), (1_047_552, "1,023 KiB"),
        (1_048_064, "1.00 MiB"), (2**26, "64.0 MiB"), (3 * 2**40, "3.00 TiB"), (-(2**20), "-1.00 MiB"),
    ],
)  # fmt: skip
def test_sizes(count: float, text: str) -> None:
    assert format_bytes(count) == text


@pytest.mark.parametrize(
    ("ratio", "text"),
    [
        (0, "0%"), (1e-12, "<0.01%"), (0.00004, "<0.01%"), (-0.00001, ">-0.01%"), (0.0001, "0.01%"), (0.07, "7%"),
        (0.0512, "5.12%"), (0.4512, "45.1%"), (0.5, "50%"), (0.99996, "100%"), (1, "100%"), (12.345, "1,234%"),
    ],
)  # fmt: skip
def test_shares(ratio: float, text: str) -> None:
    assert format_ratio(ratio) == text


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0"), (3, "3"), (1240, "1,240"), (12345.6, "12,346"), (161, "161"), (2.5, "2.5"), (1 / 3, "0.333"),
        (99.96, "100"), (0.0004, "0.0004"), (3e-8, "<0.000001"), (-2.5, "-2.5"), (float("inf"), "inf"),
    ],
)  # fmt: skip
def test_counts(count: float, text: str) -> None:
    assert format_count(count) == text


def test_ranges_and_signs() -> None:
    assert (format_quantity(2e9, RATES), format_quantity(4.09e9, OPERATIONS)) == ("1.86 GiB/s", "4.09 GFLOP")
    assert format_range(100e3, 2e6, TIMES) == "0.1–2 ms"
    assert format_range(-100e3, 2e6, TIMES) == "-0.1 … 2 ms"
    assert format_range(2e6, 2e6, TIMES) == "2.00 ms"
    assert (format_duration(1.2e6, signed=True), format_ratio(-0.0123, signed=True)) == ("+1.20 ms", "-1.23%")
    assert [format_in(ns, MS) for ns in (43_210, 18_421_000, 1_685_970_000, 0.1)] == [
        "0.0432", "18.4", "1,686", "<0.000001",
    ]  # fmt: skip


@given(NUMBERS, st.sampled_from(QUANTITIES))
def test_what_is_shown_is_read_back_within_half_of_its_last_digit(value: float, family: Family | None) -> None:
    text = shown(value, family)
    assert (value == 0) == (text.split()[0].rstrip("%") == "0"), "nothing but 0 is shown as 0"
    if text[0] not in "<>":
        read = parse_quantity(text, family)
        error = abs(Fraction(read) - Fraction(value))
        assert error <= half_of_the_last_digit(text, family) + abs(Fraction(value)) / 2**50


@given(NUMBERS, st.sampled_from(QUANTITIES))
def test_people_are_shown_three_digits(value: float, family: Family | None) -> None:
    digits = re.sub(r"[^\d.]", "", shown(abs(value), family))
    decimals = digits.partition(".")[2]
    assert len(digits.replace(".", "").lstrip("0")) <= 3 or not decimals, "more only of whole numbers"


@given(st.lists(NUMBERS, min_size=2), st.sampled_from(QUANTITIES))
def test_larger_numbers_are_not_shown_as_smaller_ones(values: list[float], family: Family | None) -> None:
    least = {None: 1e-6, **{one.suffix: one.units[0].size for one in FAMILIES}}

    def read(text: str) -> float:
        if text[0] in "<>":  # between 0 and the smallest number that is shown
            return (1 if text[0] == "<" else -1) * least[family.suffix if family else None] / 1e6
        return parse_quantity(text, family)

    numbers = [read(shown(value, family)) for value in sorted(values)]
    assert numbers == sorted(numbers)


@given(st.lists(NUMBERS, min_size=1), st.sampled_from(FAMILIES))
def test_columns_never_show_0_and_align(values: list[float], family: Family) -> None:
    ((unit,),) = column_units([[values]], family)
    form = column_format(values, unit)
    texts = [form.text(value) for value in values]
    assert [text == "0" for text in texts] == [value == 0 for value in values]
    assert {len(text.partition(".")[2]) for text in texts if text != "0"} <= {form.decimals}
    order = sorted((text for text in texts if text[0] not in "<>"), key=lambda text: float(text.replace(",", "")))
    exact = sorted((value, at) for at, value in enumerate(values) if texts[at][0] not in "<>")
    assert [float(texts[at].replace(",", "")) for _, at in exact] == [float(text.replace(",", "")) for text in order]


@pytest.mark.parametrize(
    ("values", "texts"),
    [
        ((125_415_476, 2_000_000, 1_230, 0, None), ("125.415", "2.000", "0.001", "0")),
        ((125_415_476, 120_000_000, 98_765_432, 300_000), ("125.4", "120.0", "98.8", "0.3")),
        ((5_000_000, 6_123_000, 7_999_999, 9_123_456_000), ("5.00", "6.12", "8.00", "9,123.46")),
    ],
)
def test_three_quarters_of_a_column_have_three_digits(values: tuple[int | None, ...], texts: tuple[str, ...]) -> None:
    form = column_format(values, MS)
    assert tuple(form.text(value) for value in values if value is not None) == texts


@pytest.mark.parametrize(
    ("family", "text", "value"),
    [
        (TIMES, "20 ms", 20e6), (TIMES, "1.69s", 1.69e9), (TIMES, "82 us", 82e3),
        (TIMES, "82.0 µs", 82e3), (TIMES, " 1,686 ms ", 1.686e9), (TIMES, "-5ns", -5),
        (SIZES, "64 MiB", 2**26), (SIZES, "64 MB", 64e6), (SIZES, "64", 64),
        (SHARES, "5%", 0.05), (SHARES, "5 %", 0.05), (SHARES, "0.05", 0.05),
        (None, "1.5M", 1.5e6), (None, "1_240", 1240), (None, "2e3", 2000),
        (None, ".5", 0.5),
    ],
)  # fmt: skip
def test_what_people_write(family: Family | None, text: str, value: float) -> None:
    assert parse_quantity(text, family, needs_unit=family is TIMES) == pytest.approx(value)


@pytest.mark.parametrize(
    ("family", "text", "error"),
    [
        (TIMES, "20", "'20' is not a duration; example: 20 ms; units: ns, µs, ms, s, us"),
        (TIMES, "2 B", "'2 B' is not a duration; example: 20 ms; units: ns, µs, ms, s, us"),
        (TIMES, "20 M", "'20 M' is not a duration; example: 20 ms; units: ns, µs, ms, s, us"),
        (SHARES, "much", "'much' is not a share; example: 5%; units: %, K, M, G, T"),
        (None, "", "'' is not a number; example: 1.5 M; units: K, M, G, T"),
    ],
)
def test_one_line_tells_what_is_wrong(family: Family | None, text: str, error: str) -> None:
    with pytest.raises(UsageError) as raised:
        parse_quantity(text, family, needs_unit=family is TIMES)
    assert str(raised.value) == error
