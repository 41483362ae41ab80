"""Run checks in a new process, so that a crash or a hang of an imported library becomes the result of a check."""

from __future__ import annotations

import importlib
import json
import os
import re
import signal
import subprocess
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Final

from perfkit_core.base.system import processes
from perfkit_core.base.system.failures import one_line
from perfkit_core.base.system.outside_text import decode_json
from perfkit_core.errors import PerfkitError
from perfkit_core.plugins.contracts import PROBLEM, Check

SECONDS: Final = 120.0
"""Time limit of a process. The first import of a framework from a network drive may take a minute."""
_LONGEST: Final = 300
"""Maximum number of characters of a line of output."""
_FRAME: Final = re.compile(r'most recent call first\):\s+File "(.+)", line (\d+)')
"""The innermost frame that Python prints after a crash."""
_CODE: Final = (
    "import sys; from perfkit_core.integrations.doctor import child_process; child_process.main(*sys.argv[1:])"
)


def checks_of(
    name: str, target: str, arguments: Sequence[str] = (), *, about: str = "", fix: str = "", seconds: float = SECONDS
) -> list[Check]:
    """Return the checks that a function yields in a new process. ``target`` names it: ``package.module:function``. If
    the function raises, crashes or takes too long, the last check has the name ``name``, a text that begins with
    ``about`` and ends with the reason, and ``fix`` unless the error says what to do."""
    with tempfile.TemporaryDirectory(prefix="perfkit-") as folder:
        results, errors = Path(folder) / "results", Path(folder) / "errors"
        results.touch()
        with errors.open("wb") as stderr:
            process = subprocess.Popen(
                processes.python(_CODE, str(results), target, *arguments), stdin=subprocess.DEVNULL,
                stdout=stderr, stderr=stderr, cwd=folder, env=processes.environment() | {"PYTHONFAULTHANDLER": "1"},
            )  # fmt: skip
            try:
                code = process.wait(seconds)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                code = None
        *lines, _ = results.read_bytes().split(b"\n")  # the last one is empty, or cut off by a crash
        checks = [decode_json(line, Check) for line in lines]
        prefix = f"{about}: " if about else ""
        if code == 0:
            return [
                check if check.name else replace(check, name=name, text=f"{prefix}{check.text}", fix=check.fix or fix)
                for check in checks
            ]
        reason = f"gave no result within {seconds:g} s" if code is None else f"{_end(code)}{_where(errors)}"
    after = f", after: {checks[-1].text}" if checks else ""
    text = f"{prefix}the process {reason}{after}"
    return [*checks, Check(name, PROBLEM, text, fix, {"exit_code": code})]


def _end(code: int) -> str:
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        return f"crashed with {signal.Signals(-code).name}"
    except ValueError:
        return f"was ended by signal {-code}"


def _where(file: Path) -> str:
    """Return where a process crashed, or else its last line of output."""
    printed = file.read_text(encoding="utf-8", errors="backslashreplace").strip()
    frame = _FRAME.search(printed)
    if frame is not None:
        return f" in {frame[1]}:{frame[2]}"
    lines = printed.splitlines()
    return f" ({' '.join(lines[-1].split())[:_LONGEST]})" if lines else ""


def main(results: str, target: str, *arguments: str) -> None:
    """Write the checks of the function ``target`` to the file ``results``, each as soon as it is known. The check of an
    error has no name."""
    with Path(results).open("w", encoding="utf-8", errors="backslashreplace") as file:

        def write(check: Check) -> None:
            file.write(json.dumps(asdict(check)) + "\n")
            file.flush()

        module, _, function = target.partition(":")
        try:
            checks: Iterable[Check] = getattr(importlib.import_module(module), function)(*arguments)
            for check in checks:
                write(check)
        except PerfkitError as error:
            write(Check("", PROBLEM, error.message, error.hint))
        except (Exception, SystemExit) as error:
            write(Check("", PROBLEM, f"this check failed ({one_line(error)})"))
    # Libraries that were only imported for a check may crash when Python ends.
    os._exit(0)


def imported(*modules: str) -> Iterable[Check]:
    """Yield whether each module can be imported: checks with the names ``import.MODULE``."""
    for module in modules:
        name = f"import.{module}"
        try:
            importlib.import_module(module)
            yield Check(name, "ok", "can be imported")
        except Exception as error:  # a module may raise anything
            yield Check(name, PROBLEM, one_line(error))
