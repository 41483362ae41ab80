"""What the reading of a Chrome-trace file has to confess, whatever the dialect."""

from __future__ import annotations

from perfkit_core.language.messages import Message, message
from perfkit_core.model.meta import Finding
from perfkit_core.readers.chrome.reader import ChromeFile
from perfkit_core.readers.chrome.recorder import Recorder


def file_findings(file: ChromeFile, recorder: Recorder) -> tuple[Finding, ...]:
    """Findings about truncation, what is no event, repaired or skipped events, impossible times and event types that
    are not read."""
    found = []
    if file.truncated_at is not None:
        found.append(Finding("truncated", breaks_off(file.truncated_at)))
    found += strays(file)
    if file.repaired:
        text = message("{count} events were not valid JSON and have been repaired", count=file.repaired)
        found.append(Finding("repaired-events", text))
    if file.skipped:
        found.append(Finding("skipped-events", skipped(file.skipped)))
    if recorder.untimed:
        text = message("{count} events have no start time and are missing", count=recorder.untimed)
        found.append(Finding("events-without-start", text))
    if recorder.mistimed:
        found.append(mistimed(recorder.mistimed))
    if recorder.reversed:
        found.append(negative_durations(recorder.reversed))
    if recorder.unknown:
        kinds = ", ".join(f"{count} of type {ph!r}" for ph, count in sorted(recorder.unknown.items()))
        text = message("events of types that carry no duration were not read: {types}", types=kinds)
        found.append(Finding("unread-events", text))
    return tuple(found)


def breaks_off(at: int) -> Message:
    """That a file is cut off; ``at``: bytes."""
    return message("the file breaks off at byte {at}: what was to be written behind it is missing", at=at)


def strays(file: ChromeFile) -> list[Finding]:
    """That something else stands behind the document, or between its events."""
    found = []
    if file.more_at is not None:
        text = message(
            "the file goes on behind the end of the document, at byte {at}: that was not read", at=file.more_at
        )
        found.append(Finding("more-behind", text))
    if file.strays:
        text = message(
            "in {count} places between the events stood something else, which was left out", count=file.strays
        )
        found.append(Finding("stray-text", text))
    return found


def mistimed(count: int) -> Finding:
    """Events that have no place in time."""
    text = message("{count} events have a start or duration that is no time and are missing", count=count)
    return Finding("events-without-start", text)


def negative_durations(count: int) -> Finding:
    """Events with their end before their start."""
    text = message("{count} events ended before they began: their duration is taken as 0", count=count)
    return Finding("negative-durations", text)


def skipped(count: int) -> Message:
    """That events could not be read."""
    return message("{count} events were not valid JSON, or nested too deep, and are missing", count=count)
