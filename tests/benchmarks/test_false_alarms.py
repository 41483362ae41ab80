"""The benchmark of error rates, with few comparisons. Its random numbers are seeded, so its rates repeat."""

from __future__ import annotations

from benchmarks import false_alarms


def test_every_machine_and_method_has_two_error_rates() -> None:
    (table,) = false_alarms.section(2, lambda text: None).tables
    assert len(table.rows) == len(false_alarms.MACHINES) * len(false_alarms.METHODS) == 12
    assert all(cell.endswith("%") for row in table.rows for cell in row[2:])


def test_three_captures_tell_a_change_of_five_percent() -> None:
    alarms, missed = false_alarms.rates(false_alarms.MACHINES[-1], false_alarms.METHODS[-1], 40)
    assert alarms <= 0.05
    assert missed <= 0.1
