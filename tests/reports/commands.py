"""Runs commands in a process that may crash: ``python -m tests.reports.commands`` with a list of commands as input."""

from __future__ import annotations

import contextlib
import io
import json
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

from tests.support.paths import ROOT


def run_all(commands: Sequence[Sequence[str]]) -> list[dict[str, Any]]:
    """Return exit code, output and error text of each command. A command that kills its process has the negative number
    of the signal as its code. The others run in another process."""
    results: list[dict[str, Any]] = []
    while len(results) < len(commands):
        left = json.dumps([list(command) for command in commands[len(results) :]])
        program = [sys.executable, "-m", "tests.reports.commands"]
        ended = subprocess.run(program, input=left, capture_output=True, text=True, cwd=ROOT, check=False)
        results += [json.loads(line) for line in ended.stdout.splitlines()]
        if ended.returncode:
            results.append({"code": ended.returncode, "out": "", "err": ended.stderr[-2000:]})
    return results


def main() -> None:
    """Run the commands that the standard input lists, and write one line of JSON for each."""
    from perfkit_core.cli.main import main as perfkit

    for command in json.load(sys.stdin):
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                code = perfkit(command)
            except SystemExit as end:
                code = end.code if isinstance(end.code, int) else 1
        print(json.dumps({"code": code, "out": out.getvalue(), "err": err.getvalue()}), flush=True)


if __name__ == "__main__":
    main()
