"""View ``findings``: warnings and notes on the quality of the recorded data. Notes do not indicate a problem."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pandas as pd

from perfkit_core.base.language.messages import message
from perfkit_core.plugins.contracts import Reduction, View, ViewRequest
from perfkit_core.trace.model import account
from perfkit_core.trace.model.account import ReadEvents
from perfkit_core.trace.model.columns import key, text
from perfkit_core.trace.model.meta import Finding, StoredFinding, united
from perfkit_core.trace.model.trace import Trace
from perfkit_core.views import select


def reduce(trace: Trace, request: ViewRequest) -> dict[str, Any]:
    select.in_steps(trace, request)  # raises UsageError if a requested step was not recorded
    findings = [msgspec.to_builtins(StoredFinding.of(finding)) for finding in trace.quality]
    entries = msgspec.to_builtins(trace.account)
    return {"ranks": list(trace.meta.ranks), "findings": findings, "account": entries}


def merge(partials: Sequence[dict[str, Any]], request: ViewRequest) -> pd.DataFrame:
    """Return one row per finding, with :data:`COLUMNS`. A finding of several ranks has one row. The last row sums up
    the account of the events."""
    parts = [
        (tuple(part["ranks"]), tuple(msgspec.convert(stored, StoredFinding).finding() for stored in part["findings"]))
        for part in partials
    ]
    # The ranks of a joined trace all have its findings, which already name the ranks.
    joined = len({findings for _, findings in parts}) < 2
    findings = tuple(dict.fromkeys(finding for _, group in parts for finding in group)) if joined else united(parts)
    entries = account.joined([msgspec.convert(part.get("account", []), list[ReadEvents]) for part in partials])
    if entries:
        findings += (_account(entries),)
    rows = [
        {"code": finding.code, "severity": "note" if finding.note else "warning", "note": finding.text}
        for finding in findings
    ]
    return pd.DataFrame(rows, columns=[column.name for column in COLUMNS], dtype=object)


def _account(entries: Sequence[ReadEvents]) -> Finding:
    counts = {name: account.total(entries, name) for name in account.READ}
    events = account.total(entries)
    text = message(
        "of {events:count} events in the source, {row:count} are rows of the event table, {metadata:count} are "
        "metadata, {link:count} are links and {rest:count} are left out (--view account shows them by category)",
        events=events,
        rest=events - sum(counts.values()),
        **counts,
    )
    return Finding("event-account", text, note=True)


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
