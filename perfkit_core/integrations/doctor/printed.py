"""The results of all checks as text and as JSON. People paste both into issues, so they name no user and no machine."""

from __future__ import annotations

import getpass
import json
import os
import platform
import re
import shutil
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Final

from perfkit_core.base.language.units import counted
from perfkit_core.plugins.checks import PROBLEM, Check, Status

TOPICS: Final = {
    "version": "Versions",
    "dependency": "Dependencies",
    "extra": "Extras",
    "plugin": "Plugins",
    "framework": "Frameworks",
    "device": "GPU drivers",
    "compiled": "Compiled functions",
    "folder": "Folders",
    "terminal": "Terminal",
}
"""First part of the name of a check → its heading, in the order of the output."""
_SHORT: Final = ("version", "dependency", "plugin", "folder")
"""Topics whose results that are ok share their lines."""
_WIDTH: Final = 100
_MARKS: Final[Mapping[Status, str]] = {"ok": "ok", "note": "note", "warning": "warning", "problem": "PROBLEM"}
_INDENT: Final = max(map(len, _MARKS.values())) + 2
_CREDENTIALS: Final = re.compile(r"(?<=://)[^/\s@]+@")
_QUERY: Final = re.compile(r"(?<=://)([^\s?]+)\?\S+")
_COMMON: Final = frozenset({"root", "user", "localhost", "home", "runner"})
"""Names of users and machines that tell nothing."""


def text(checks: Sequence[Check]) -> str:
    """Return the results for people: first the number of problems, then all results by topic."""
    width = min(shutil.get_terminal_size((_WIDTH, 24)).columns, _WIDTH)
    lines = [verdict(checks)]
    for topic, title in TOPICS.items():
        of_topic = [check for check in checks if check.name.partition(".")[0] == topic]
        if not of_topic:
            continue
        lines += ["", title]
        if topic in _SHORT:
            good = ", ".join(check.text for check in of_topic if check.status == "ok")
            lines += _entry("ok", good, width) if good else []
            of_topic = [check for check in of_topic if check.status != "ok"]
        for check in of_topic:
            lines += _entry(check.status, check.text, width)
            lines += _entry(None, f"→ {check.fix}", width) if check.fix and check.status != "ok" else []
    return "\n".join(lines) + "\n"


def verdict(checks: Sequence[Check]) -> str:
    """Return the number of problems, warnings and notes."""
    counts = {status: sum(check.status == status for check in checks) for status in ("problem", "warning", "note")}
    parts = [counted(count, status) for status, count in counts.items() if count]
    return f"perfkit doctor: {', '.join(parts) or 'no problems'}"


def _entry(status: Status | None, what: str, width: int) -> list[str]:
    mark = "" if status is None else _MARKS[status]
    indent = " " * _INDENT
    wrapped = textwrap.wrap(
        what, max(width, 2 * _INDENT), initial_indent=f"{mark:<{_INDENT}}", subsequent_indent=indent,
        break_on_hyphens=False,
    )  # fmt: skip
    return wrapped or [mark]


def document(checks: Sequence[Check]) -> str:
    """Return the results as JSON: ``{"status", "checks": [{"name", "status", "text", "fix", "data"}]}``. ``status`` is
    the worst status of a check."""
    order = list(_MARKS)
    worst = max((check.status for check in checks), key=order.index, default="ok")
    content = {"status": worst, "checks": list(map(asdict, checks))}
    return json.dumps(content, indent=2, ensure_ascii=False) + "\n"


def broken(checks: Iterable[Check]) -> bool:
    return any(check.status == PROBLEM for check in checks)


def without_names(checks: Iterable[Check]) -> list[Check]:
    """Return the checks without the home folder (``~``), the names of the user and the machine (``USER``, ``HOST``),
    and credentials of addresses."""
    return [
        replace(check, text=_anonymous(check.text), fix=_anonymous(check.fix), data=_plain(check.data))
        for check in checks
    ]


def _plain(value: Any) -> Any:
    if isinstance(value, str):
        return _anonymous(value)
    if isinstance(value, Mapping):
        return {_anonymous(str(key)): _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, (list, tuple)) else value


def _anonymous(line: str) -> str:
    line = _QUERY.sub(r"\1", _CREDENTIALS.sub("", line))
    home = Path.home()
    for folder in {str(home), os.path.realpath(home)}:
        if len(folder) > 1:
            line = re.sub(rf"{re.escape(folder)}(?![\w.-])", "~", line)
    for name, shown in ((_user(), "USER"), (platform.node(), "HOST"), (platform.node().partition(".")[0], "HOST")):
        if len(name) > 2 and name.lower() not in _COMMON:
            line = re.sub(rf"(?<![\w.-]){re.escape(name)}(?![\w-])", shown, line)
    return line


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError, ImportError):  # a container may run as a user without a name
        return ""
