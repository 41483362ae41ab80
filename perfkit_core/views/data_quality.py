"""Views ``findings``, the warnings and notes on the recorded data, and ``account``, what became of the events of the
source. Notes do not indicate a problem. The numbers of events add up to all events in the source."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pandas as pd

from perfkit_core.base.language.messages import message
from perfkit_core.plugins.contracts import Reduced, View, ViewRequest
from perfkit_core.trace.model import account
from perfkit_core.trace.model.account import ReadEvents
from perfkit_core.trace.model.columns import count, duration, key, text
from perfkit_core.trace.model.meta import Finding, StoredFinding, united
from perfkit_core.trace.model.trace import Trace


def _findings(trace: Trace, request: ViewRequest) -> dict[str, Any]:
    findings = [msgspec.to_builtins(StoredFinding.of(finding)) for finding in trace.quality]
    entries = msgspec.to_builtins(trace.account)
    return {"ranks": list(trace.meta.ranks), "findings": findings, "account": entries}


def _merge_findings(partials: Sequence[dict[str, Any]], request: ViewRequest) -> pd.DataFrame:
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
    return pd.DataFrame(rows, columns=[column.name for column in FINDINGS_COLUMNS], dtype=object)


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


FINDINGS_COLUMNS = (
    key("code", "Code"),
    text("severity", "Severity", words=True),
    text("note", "Finding"),
)
FINDINGS_VIEW = View(
    name="findings",
    title="Data quality",
    description="warnings and notes on the quality of the recorded data",
    table=Reduced(_findings, _merge_findings),
    columns=FINDINGS_COLUMNS,
    explain_empty=lambda trace: message("there are no warnings or notes on this recording"),
    report="",
)


def _entries(trace: Trace, request: ViewRequest) -> list[dict[str, Any]]:
    entries: list[dict[str, Any]] = msgspec.to_builtins(trace.account)
    return entries


def _merge_entries(partials: Sequence[list[dict[str, Any]]], request: ViewRequest) -> pd.DataFrame:
    """Return one row per outcome, type, category and process, with :data:`COLUMNS`. Rows of the event table come first,
    then metadata and links, then events that are left out, each with the most events first."""
    entries = account.joined([msgspec.convert(part, list[ReadEvents]) for part in partials])
    order = {became: number for number, became in enumerate(account.READ)}
    entries = tuple(sorted(entries, key=lambda entry: (order.get(entry.became, len(order)), -entry.count)))
    rows = [
        (entry.became, entry.type, entry.category, entry.process, entry.count,
         entry.dur_ns if entry.became == account.ROW else None)
        for entry in entries
    ]  # fmt: skip
    table = pd.DataFrame(rows, columns=[column.name for column in ACCOUNT_COLUMNS], dtype=object)
    return table.astype({"events": "int64", "dur_ns": "Int64"})


ACCOUNT_COLUMNS = (
    key("became", "Outcome", words="ids"),
    key("type", "Type"),
    key("category", "Recorded category"),
    key("process", "Process or device"),
    count("events", "Events"),
    duration("dur_ns", "Sum of durations"),
)
ACCOUNT_VIEW = View(
    name="account",
    title="Account of the events",
    description="what became of each event of the source: a row of the event table, metadata, a link, or left out",
    table=Reduced(_entries, _merge_entries),
    columns=ACCOUNT_COLUMNS,
    explain_empty=lambda trace: message(
        "an older perfkit made this recording, and did not count the events that it read"
    ),
)
