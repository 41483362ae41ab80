"""What the reading of a Chrome-trace file has to confess, whatever the dialect."""

from __future__ import annotations

from perfkit_core.sources.chrome import ChromeFile
from perfkit_core.sources.recorder import Recorder
from perfkit_core.trace import Finding


def file_findings(file: ChromeFile, recorder: Recorder) -> tuple[Finding, ...]:
    """Findings about truncation, repaired or skipped events and event types that are not read."""
    found = []
    if file.truncated_at is not None:
        found.append(Finding("truncated", f"the file breaks off at byte {file.truncated_at}: later events are missing"))
    if file.repaired:
        found.append(Finding("repaired-events", f"{file.repaired} events were not valid JSON and have been repaired"))
    if file.skipped:
        found.append(Finding("skipped-events", f"{file.skipped} events were not valid JSON and are missing"))
    if recorder.unknown:
        kinds = ", ".join(f"{count} of type {ph!r}" for ph, count in sorted(recorder.unknown.items()))
        found.append(Finding("unread-events", f"events of types that carry no duration were not read: {kinds}"))
    return tuple(found)
