"""Checks of perfkit's folders, of compiled functions, and of the terminal."""

from __future__ import annotations

import ctypes
import os
import shutil
import sys
import webbrowser
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from perfkit_core.base.language.units import counted, format_bytes
from perfkit_core.base.system.failures import why_unwritable
from perfkit_core.base.system.machine import cpu_model, has_display, usable_cpus
from perfkit_core.base.system.paths import user_folder
from perfkit_core.plugins.checks import PROBLEM, Check, Status

RUNS: Final = "runs"
_REINSTALL: Final = "pip install --force-reinstall --no-deps perfkit"


def machine() -> Iterator[Check]:
    """Yield the processor."""
    cores = len(usable_cpus())
    yield Check("version.processor", "ok", f"{cpu_model()}, {counted(cores, 'usable core')}", data={"cores": cores})


def compiled_functions() -> Iterator[Check]:
    """Yield whether the libraries of compiled functions of perfkit's packages can be loaded."""
    folder = Path(__file__).parents[3]
    libraries = sorted(folder.glob("perfkit_*/_compiled/*.so"))
    broken = [(path.name, str(error)) for path in libraries if (error := _load_error(path))]
    size = sum(path.stat().st_size for path in libraries)
    data = {"folder": str(folder), "bytes": size, "libraries": len(libraries), "broken": [name for name, _ in broken]}
    if broken or not libraries:
        text = "{} cannot be loaded ({})".format(*broken[0]) if broken else f"compiled code is missing in {folder}"
        yield Check("compiled.libraries", PROBLEM, text, _REINSTALL, data)
    else:
        text = f"{counted(len(libraries), 'compiled module')} ({format_bytes(size)}) in {folder}"
        yield Check("compiled.libraries", "ok", text, data=data)


def _load_error(path: Path) -> OSError | None:
    try:
        ctypes.CDLL(str(path))
    except OSError as error:
        return error
    return None


def folders() -> Iterator[Check]:
    """Yield whether perfkit can write its folders."""
    cache, state = user_folder("XDG_CACHE_HOME", ".cache"), user_folder("XDG_STATE_HOME", ".local/state")
    runs = Path.cwd() / RUNS
    yield _folder("folder.runs", "recordings", runs, PROBLEM, "name another folder: perfkit record -o DIR")
    yield _folder("folder.cache", "pages and calibrations", cache, "warning", "set XDG_CACHE_HOME to a writable folder")
    yield _folder("folder.state", "outcomes of advice", state, "warning", "set XDG_STATE_HOME to a writable folder")


def _folder(name: str, content: str, folder: Path, bad: Status, fix: str) -> Check:
    reason = why_unwritable(folder)
    data = {"folder": str(folder), "writable": reason is None}
    if reason is None:
        return Check(name, "ok", f"{content}: {folder}", data=data)
    return Check(name, bad, f"{content}: {folder} cannot be written ({reason})", fix, data)


def terminal() -> Iterator[Check]:
    """Yield what the terminal can show, and whether a browser can be opened."""
    columns, lines = shutil.get_terminal_size()
    encoding = (sys.stdout.encoding or "unknown").lower()
    is_terminal = sys.stdout.isatty()
    data = {
        "terminal": is_terminal, "columns": columns, "lines": lines, "encoding": encoding,
        "term": os.environ.get("TERM"), "no_color": bool(os.environ.get("NO_COLOR")),
    }  # fmt: skip
    text = f"a terminal of {columns} × {lines} characters" if is_terminal else "the output is not a terminal"
    if encoding.replace("-", "") == "utf8":
        yield Check("terminal.output", "ok", f"{text}, {encoding}", data=data)
    else:
        fix = "set PYTHONIOENCODING=utf-8, or a UTF-8 locale such as LANG=C.UTF-8"
        yield Check("terminal.output", "note", f"{text}, whose encoding {encoding} lacks some characters", fix, data)
    browser = _browser()
    data = {"browser": browser, "display": has_display()}
    if browser is not None and has_display():
        yield Check("terminal.browser", "ok", f"perfkit view opens {browser}", data=data)
    else:
        why = "no browser was found" if browser is None else "there is no display"
        fix = "perfkit view prints how to open its page on another computer; or set BROWSER"
        yield Check("terminal.browser", "note", f"{why}, so perfkit view opens no page here", fix, data)


def _browser() -> str | None:
    try:
        browser = webbrowser.get()
    except webbrowser.Error:
        return None
    return str(getattr(browser, "name", "") or type(browser).__name__)
