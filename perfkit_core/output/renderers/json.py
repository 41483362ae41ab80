"""JSON for scripts. The format is stable.

The document is ``{"source": path or [paths], "quality": [{"code", "message"}], "views": {name: [{column: value}]}}``.
The keys of ``Report.data`` are added to the document. A key with the same name replaces the standard key. Times are
integer ns, sizes are integer bytes, and unknown values are null. NaN and Infinity do not occur."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import msgspec

from perfkit_core.base.language.messages import english
from perfkit_core.output.renderers.cells import plain, records
from perfkit_core.trace.model.report_data import Report


def render(report: Report) -> str:
    paths = [source.path for source in report.sources]
    findings = dict.fromkeys(finding for source in report.sources for finding in source.quality)
    content: dict[str, Any] = {
        "source": paths[0] if len(paths) == 1 else paths,
        "quality": [{"code": finding.code, "message": english(finding.text)} for finding in findings],
        "views": {},
    }
    for section in report.sections:
        names, rows = records(section)
        content["views"][section.name] = [dict(zip(names, row, strict=True)) for row in rows]
    return document({**content, **report.data})


def document(content: Mapping[str, Any]) -> str:
    """Return plain data as indented JSON with a final newline."""
    text = json.dumps(plain(content), ensure_ascii=False, allow_nan=False)
    # In Python, undecodable bytes of a path are surrogates. UTF-8 cannot encode them, so JSON escapes them (\udcxx).
    encoded = text.encode("utf-8", "backslashreplace")
    return msgspec.json.format(encoded, indent=2).decode("utf-8") + "\n"
