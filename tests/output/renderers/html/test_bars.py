"""Charts without a script: positions of intervals, parts of a bar and their texts, compared with values worked out by
hand."""

from __future__ import annotations

import pandas as pd
import pytest

from perfkit_core.output.renderers.html.bars import MOST, parts, spans
from perfkit_core.output.renderers.html.page import render
from perfkit_core.trace.model.report_data import Chart, Report, Section, Source
from tests.support.small_trace import HOSTILE

NOW, AFTER = ("now_ns", "now_ns", "now_ns"), ("low_ns", "mid_ns", "high_ns")
CHART = Chart("intervals", "name", (*NOW, *AFTER), names=("now", "afterwards"))
MS = 1_000_000


def section(chart: Chart = CHART, **columns: list[object]) -> Section:
    return Section("advice", "Advice", pd.DataFrame(columns), chart=chart)


def test_positions_are_percent_of_a_scale_of_round_numbers() -> None:
    found = spans(section(name=["a"], now_ns=[8 * MS], low_ns=[2 * MS], mid_ns=[3 * MS], high_ns=[6 * MS]))
    assert found is not None
    assert found.ticks == ((0.0, "0 ms"), (25.0, "2 ms"), (50.0, "4 ms"), (75.0, "6 ms"), (100.0, "8 ms"))
    (row,) = found.rows
    now, after = row.marks
    assert now is not None
    assert after is not None
    assert (now.left, now.middle, now.width) == (100.0, 100.0, 0.0)
    assert (after.left, after.middle, after.width) == (25.0, 37.5, 50.0)
    assert row.joined == (37.5, 62.5)
    assert row.numbers == "8.00 → 3.00 (2.00–6.00) ms"


def test_what_is_unknown_is_not_drawn() -> None:
    unknown = {name: pd.array([None], "Int64") for name in AFTER}
    found = spans(section(name=["a"], now_ns=[1500], **unknown))
    assert found is not None
    assert found.rows[0].marks[1] is None
    assert found.rows[0].joined is None
    assert found.rows[0].numbers == "1.50 µs → unknown"
    nothing = {name: pd.array([None], "Int64") for name in ("now_ns", *AFTER)}
    assert spans(section(name=["a"], **nothing)) is None
    assert spans(Section("s", "S", pd.DataFrame({"name": []}), chart=CHART)) is None


def test_losses_are_left_of_zero() -> None:
    chart = Chart("intervals", "name", ("low_ratio", "saving_ratio", "high_ratio"), names=("saving",))
    found = spans(section(chart, name=["a"], low_ratio=[-0.5], saving_ratio=[0.25], high_ratio=[0.5]))
    assert found is not None
    assert [said for _, said in found.ticks] == ["-60%", "-40%", "-20%", "0%", "20%", "40%", "60%"]
    mark = found.rows[0].marks[0]
    assert mark is not None
    assert (mark.left, mark.middle, mark.width) == pytest.approx((100 / 12, 850 / 12, 1000 / 12), abs=0.01)
    assert found.rows[0].numbers == "25% (-50%…50%)"


@pytest.mark.parametrize(
    ("value", "number", "unit"),
    [
        (0, "0", "ns"),
        (999, "999", "ns"),
        (1_004, "1.00", "µs"),
        (123_456_789, "123", "ms"),
        (98_700_000_000, "98.7", "s"),
        (12_345_678_000_000, "12,346", "s"),
    ],
)
def test_three_significant_digits(value: int, number: str, unit: str) -> None:
    found = spans(section(name=["a"], **{name: [value] for name in ("now_ns", *AFTER)}))
    assert found is not None
    assert found.rows[0].numbers == f"{number} → {number} {unit}"


def test_a_long_table_is_drawn_in_part() -> None:
    count = MOST + 5
    found = spans(section(name=list(range(count)), **{name: [MS] * count for name in ("now_ns", *AFTER)}))
    assert found is not None
    assert (len(found.rows), found.left_out) == (MOST, 5)


def test_a_bar_of_shares_only_leaves_out_zeros() -> None:
    chart = Chart("share", "category", ("total_ns",))
    found = parts(section(chart, category=["compute", "copy", "idle"], total_ns=[600, 0, 200]))
    assert [(one.label, one.width, one.numbers, one.colour) for one in found] == [
        ("compute", 75.0, "75%", "operator"), ("idle", 25.0, "25%", "idle"),
    ]  # fmt: skip
    bars = parts(section(chart, category=["a", "b"], total_ns=[99_999, 1]))
    assert [bar.numbers for bar in bars] == ["100%", "<0.01%"]
    assert parts(section(chart, category=["idle"], total_ns=[0])) == ()


def test_parts_are_inside_their_section_and_rows_lead_to_them() -> None:
    whole = section(id=["x"], name=[HOSTILE], now_ns=[8], low_ns=[1], mid_ns=[2], high_ns=[3])
    part = Section("advice-x", "Part", pd.DataFrame(), lines=("Said.",), within="advice")
    folded = Section("more", "More", pd.DataFrame(), lines=("Folded.",), within="advice", folded=True)
    stray = Section("stray", "Stray", pd.DataFrame(), lines=("Alone.",), within="nowhere")
    page = render(Report("t", (Source("a", "a"),), (whole, part, folded, stray), glance=(whole,)))
    assert page.count('<a href="#advice-x">') == 2  # links only come from the glance and from the section
    assert page.index('id="advice"') < page.index('id="advice-x"') < page.index('id="stray"')
    assert page.index("Said.") < page.index("<details><summary><h3") < page.index("Folded.")
    assert '<section id="stray" aria-labelledby' in page
    assert "<img src=x" not in page


def test_short_tables_of_parts_are_plain() -> None:
    table = pd.DataFrame({"name": list("abcdefghij")})
    whole = Section("whole", "Whole", table)
    page = render(Report("t", (Source("a", "a"),), (whole, Section("part", "Part", table, within="whole"))))
    assert page.count("<table data-first") == 1
    assert page.count("<table") == 2
