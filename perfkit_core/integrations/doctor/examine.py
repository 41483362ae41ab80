"""Run all checks of the installation, in parallel, and print their results as text and JSON."""

from __future__ import annotations

import functools
import getpass
import json
import os
import platform
import re
import shutil
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Final

from perfkit_core.base.language.units import counted
from perfkit_core.base.system.failures import one_line
from perfkit_core.integrations.doctor import distributions, frameworks, machine_checks
from perfkit_core.plugins.contracts import PROBLEM, Check, Status
from perfkit_core.plugins.manager import get_plugins


def examine(tell: Callable[[str], None] = lambda pending: None) -> list[Check]:
    """Return the results of all checks, by topic. A check that fails becomes a result with its error. ``tell`` is
    called with the topics of the unfinished checks whenever one of them ends."""
    parts = {name: framework.checks() for name, framework in get_plugins().frameworks().items()}
    adapters = {name: checks for name, checks in parts.items() if checks is not None}
    of_frameworks = [name for checks in adapters.values() for name in checks.distributions]
    quick: list[tuple[str, Callable[[], Iterable[Check]]]] = [
        ("version", distributions.versions),
        ("version", machine_checks.machine),
        ("extra", functools.partial(distributions.extras, of_frameworks)),
        ("compiled", machine_checks.compiled_functions),
        ("folder", machine_checks.folders),
        ("terminal", machine_checks.terminal),
    ]
    slow: list[tuple[str, Callable[[], Iterable[Check]]]] = [  # each waits for a new process
        *((f"framework.{name}", functools.partial(frameworks.framework, name, adapters[name])) for name in adapters),
        ("dependency", distributions.dependencies),
        ("plugin", frameworks.plugins),
    ]
    with ThreadPoolExecutor(len(slow)) as pool:
        waiting = {pool.submit(_results, name, check): name.rpartition(".")[2] for name, check in slow}
        results = [check for name, run in quick for check in _results(name, run)]
        for _ in as_completed(waiting):
            tell(", ".join(dict.fromkeys(name for future, name in waiting.items() if not future.done())))
        results += [check for future in waiting for check in future.result()]
    device_counts = [check.data["devices"] for check in results if check.data.get("devices") is not None]
    results += _results(
        "device", functools.partial(machine_checks.devices, sum(device_counts) if device_counts else None)
    )
    return results


def _results(name: str, check: Callable[[], Iterable[Check]]) -> Sequence[Check]:
    results: list[Check] = []
    try:
        results.extend(check())
    except Exception as error:  # whatever is broken, the other checks must run
        results.append(Check(f"{name}.check", PROBLEM, f"this check failed ({one_line(error)})", "please report it"))
    return results


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
