"""Scripts of a page must write numbers in the same way as its tables and sentences."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pandas as pd

from perfkit_core.base.language.units import FAMILIES, format_count, format_in, format_quantity
from perfkit_core.trace.model.report_data import Chart, Section

EDGES = (
    0.0,
    0.3,
    0.5,
    1.0,
    2.5,
    9.996,
    99.95,
    122.5,
    123.5,
    999.4,
    999.5,
    1000.0,
    1023.5,
    1024.0,
    12345.6,
    1e12,
    1 / 3,
)


def test_scripts_write_numbers_as_the_tables_do(show_page: Callable[..., Any]) -> None:
    table = pd.DataFrame({"name": ["a"], "total_ns": [5]})
    section = Section("s", "S", table, chart=Chart("ranking", "name", ("total_ns",)))
    page = show_page(section)
    generator = random.Random(7)
    values = [*EDGES, *(-edge for edge in EDGES), *(10 ** generator.uniform(-4, 13) for _ in range(300))]
    values += [float(generator.randrange(10**6)) / 8 for _ in range(300)]  # many of these must be rounded from a half
    script = "([values, name]) => values.map((one) => [page.units.digits(one, name), page.units.quantity(one, name)])"
    for family in FAMILIES:
        for unit in family.units:
            whole = family.units[0].decimals == 0  # the base unit is recorded in whole numbers
            base = [float(round(value * unit.size)) if whole else value * unit.size for value in values]
            written = page.evaluate(script, [[value / unit.size for value in base], unit.name])
            wanted = [[format_in(value, unit), format_quantity(value, family)] for value in base]
            assert written == wanted, unit.name
    assert page.evaluate("(values) => values.map(page.units.count)", values) == [format_count(v) for v in values]
    assert page.evaluate("() => [1.5e6, 2e7, 0, 1e9].map((ns) => page.units.tick(ns, 'ns'))") == [
        "1.5 ms", "20 ms", "0 ns", "1 s",
    ]  # fmt: skip
