"""View ``findings``: warnings and notes on the quality of the recorded data. Notes do not indicate a problem."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pandas as pd

from perfkit_core.language.messages import message
from perfkit_core.model.columns import key, text
from perfkit_core.model.meta import StoredFinding, united
from perfkit_core.model.trace import Trace
from perfkit_core.plugins.contracts import Reduction, View, ViewRequest
from perfkit_core.views import select


def reduce(trace: Trace, request: ViewRequest) -> dict[str, Any]:
    select.in_steps(trace, request)  # raises UsageError if a requested step was not recorded
    findings = [msgspec.to_builtins(StoredFinding.of(finding)) for finding in trace.quality]
    return {"ranks": list(trace.meta.ranks), "findings": findings}


def merge(partials: Sequence[dict[str, Any]], request: ViewRequest) -> pd.DataFrame:
    """Return one row per finding, with :data:`COLUMNS`. A finding of several ranks has one row."""
    parts = [
        (tuple(part["ranks"]), tuple(msgspec.convert(stored, StoredFinding).finding() for stored in part["findings"]))
        for part in partials
    ]
    # The ranks of a joined trace all have its findings, which already name the ranks.
    joined = len({findings for _, findings in parts}) < 2
    findings = tuple(dict.fromkeys(finding for _, found in parts for finding in found)) if joined else united(parts)
    rows = [
        {"code": finding.code, "severity": "note" if finding.note else "warning", "note": finding.text}
        for finding in findings
    ]
    return pd.DataFrame(rows, columns=[column.name for column in COLUMNS], dtype=object)


def table(trace: Trace, request: ViewRequest) -> pd.DataFrame:
    return merge([reduce(trace, request)], request)


COLUMNS = (
    key("code", "Code"),
    text("severity", "Severity", words=True),
    text("note", "Finding"),
)
VIEW = View(
    name="findings",
    title="Data quality",
    description="warnings and notes on the quality of the recorded data",
    table=table,
    columns=COLUMNS,
    explain_empty=lambda trace: message("there are no warnings or notes on this recording"),
    page=False,
    reduction=Reduction(reduce, merge),
)
