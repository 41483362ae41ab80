"""What the plugin prints: why a test failed, and the table at the end of the run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import pandas as pd
import pytest

from perfkit_core.base.system.paths import printable
from perfkit_core.compare.gate.conditions import PASSED
from perfkit_core.integrations.pytest_plugin.budget import Result
from perfkit_core.integrations.pytest_plugin.section import Section
from perfkit_core.output.renderers import parts, text_table
from perfkit_core.trace.model import columns
from perfkit_core.trace.model.report_data import Section as Table

_COLUMNS: Final = (
    columns.key("test", "Test"),
    columns.key("number", "Number"),
    columns.text("limit", "Limit"),
    columns.text("measured", "Measured"),
    columns.text("result", "Result"),
    columns.text("note", "Note"),
)
_ROWS: Final = 10


def failure(name: str, failed: Sequence[Result], section: Section, changed: Table | None) -> str:
    """Return why a test failed: the exceeded limits, and the operators and kernels that were added, or the most
    frequent operators if no baseline is known."""
    lines = [f"{name} exceeds its performance budget"]
    for result in failed:
        note = f" ({result.note})" if result.note else ""
        lines += [
            f"  {result.number}: {result.measured}, limit {result.limit}{note}",
            *(f"    {line}" for line in result.lines),
        ]
    if not any(result.number in section.counts for result in failed):
        return "\n".join(lines)
    if changed is None or changed.table.empty:
        calls = sorted({**section.operators, **section.kernels}.items(), key=lambda item: -item[1])
        table = pd.DataFrame(calls, columns=["name", "calls"])
        changed = Table("operators", "Calls", table, limit=_ROWS, columns=(columns.NAME, columns.CALLS))
    return "\n".join([*lines, "", changed.title, *_lines(changed)])


def show(
    reporter: pytest.TerminalReporter,
    reports: Mapping[str, Any],
    verbose: bool,
    stored: Sequence[str],
    errors: Sequence[str],
) -> None:
    """Print the table of all results that did not pass, or of all results if ``verbose``, and which baselines were
    stored. ``reports`` has the results of each test."""
    rows = []
    for node, report in sorted(reports.items()):
        for key, result in report["results"]:
            if verbose or result["result"] != PASSED:
                rows.append(
                    [
                        f"{node.partition('::')[0]}::{key}",
                        *(result[name] for name in ("number", "limit", "measured", "result", "note")),
                    ]
                )
    if not (rows or stored or errors):
        return
    reporter.section("performance budgets (perfkit)")
    if rows:
        table = pd.DataFrame(rows, columns=[column.name for column in _COLUMNS])
        if not table["note"].any():
            table = table.drop(columns="note")
        for line in _lines(Table("budgets", "", table, columns=_COLUMNS)):
            reporter.write_line(line)
    for line in stored:
        reporter.write_line(printable(line))
    for line in errors:
        reporter.write_line(printable(line), red=True)


def _lines(table: Table) -> Iterator[str]:
    yield from text_table.table_lines(table, parts.shown(table), None, text_table.Style())[0]
    if more := parts.more(table):
        yield more
