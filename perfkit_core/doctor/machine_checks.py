"""Checks of perfkit's folders, of compiled functions, and of the terminal."""

from __future__ import annotations

import os
import shutil
import sys
import webbrowser
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from perfkit_core.doctor import child_process
from perfkit_core.language.units import counted, format_bytes
from perfkit_core.plugins.checks import PROBLEM, Check, Status
from perfkit_core.system.failures import why_unwritable
from perfkit_core.system.machine import cpu_model, has_display, usable_cpus
from perfkit_core.system.paths import user_folder

RUNS: Final = "runs"
_INDEX: Final = "*.nbi"
"""numba writes a file with this suffix for each cached function, and others with the code."""
_CODE: Final = "*.nbc"
_IN_PACKAGE: Final = "__pycache__"
_REINSTALL: Final = "pip install --force-reinstall numba llvmlite numpy"


def machine() -> Iterator[Check]:
    """Yield the processor."""
    cores = len(usable_cpus())
    yield Check("version.processor", "ok", f"{cpu_model()}, {counted(cores, 'usable core')}", data={"cores": cores})


def compiled_functions() -> Sequence[Check]:
    """Return a check of the functions that numba compiled and keeps on disk."""
    return child_process.checks_of("compiled.cache", f"{__name__}:cached_functions", fix=_REINSTALL)


def cached_functions() -> Iterator[Check]:
    """Yield where numba keeps compiled functions, and how many. This imports numba."""
    from perfkit_core.runtime.compile import cache_folder

    place = cache_folder(_nothing)
    if place is None:
        fix = "make the folder of perfkit or your cache folder writable, or set NUMBA_CACHE_DIR to a writable folder"
        text = "compiled functions cannot be kept, so each process compiles them again (up to half a minute)"
        yield Check("compiled.cache", "warning", text, fix, {"folder": None, "writable": False})
        return
    # in the package, each folder of code has its own cache; elsewhere, all are in one folder
    inside = place.name == _IN_PACKAGE
    root = place.parents[1] if inside else place.parent
    packages = place.parents[2].glob("perfkit*") if inside else [root]
    files = [file for package in packages for pattern in (_INDEX, _CODE) for file in package.rglob(pattern)]
    functions, size = sum(file.match(_INDEX) for file in files), sum(file.stat().st_size for file in files)
    reason = why_unwritable(place)
    data = {"folder": str(root), "bytes": size, "functions": functions, "writable": reason is None}
    kept = f"{counted(functions, 'compiled function')} ({format_bytes(size)}) in {root}"
    if reason is not None:
        yield Check("compiled.cache", "warning", f"{kept}, which is not writable ({reason})", data=data)
    else:
        yield Check("compiled.cache", "ok", kept, data=data)


def _nothing() -> None:
    """Do nothing: numba chooses a folder for the code of this function, but does not compile it."""


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
        found = webbrowser.get()
    except webbrowser.Error:
        return None
    return str(getattr(found, "name", "") or type(found).__name__)
