"""The tools that run scripts: they run the commands of perfkit in a new process with a time limit."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from perfkit_core.base.system import processes
from perfkit_core.base.system.paths import is_folder, is_remote, modified_ns, readable
from perfkit_core.errors import CaptureError, UsageError
from perfkit_core.integrations.agents import requests
from perfkit_core.integrations.agents.answers import Content, Items
from perfkit_core.integrations.agents.session import Session
from perfkit_core.output.report.run_list import list_runs
from perfkit_core.trace.storage.store import STEPS_SUFFIX, SUFFIX

_OUTPUT_LINES: Final = 200
"""Maximum number of lines of a program's output that an answer has: the last ones."""
_OUTPUT_BYTES: Final = 1 << 20
_PERFKIT: Final = "import sys; from perfkit_core.cli.main import main; sys.exit(main(sys.argv[1:]))"
_FOLDER: Final = "runs"
_SAVING_SECONDS: Final = 120.0
"""Seconds in which a recorder can save the recording of a script that is stopped. The first recording on a machine also
compiles functions, which takes 30 s or more on a busy one."""


class Ended(NamedTuple):
    """How a program ended: its exit code, None if it was stopped; its last lines of output; the elapsed seconds."""

    code: int | None
    lines: list[str]
    seconds: float


def record(session: Session, request: requests.Record) -> Content:
    """Run ``perfkit record``. The script is stopped when all steps are recorded. The answer has the run folder, the
    exit code (null if the script was stopped), and the last lines of the output."""
    script = _script(session, request.script)
    name = f"{_FOLDER}/{script.stem}-{time.strftime('%Y%m%d-%H%M%S')}"
    output = session.roots.path(request.output or name)
    flags = [f"--{name}" for name in ("shapes", "memory", "stacks", "flops") if getattr(request, name)]
    step_on = [f"--step-on={request.step_on}"] if request.step_on else []
    command = ["record", f"--output={output}", f"--steps={request.steps}", *flags, *step_on, "--", str(script)]
    before = _files(output)

    def complete() -> bool:
        """Return whether a local run folder has all steps, and the times of later steps without the profiler, which
        show how much longer the profiler makes a step. Unknown if the folder has older recordings."""
        if before or is_remote(output) or not any(output.glob(f"*{STEPS_SUFFIX}")):
            return False
        runs = list_runs(output)
        return bool((runs.loc[runs["path"] == readable(output), "steps"] >= request.steps).any())

    ended = run(session, [*command, *request.arguments], request.seconds, _SAVING_SECONDS, complete)
    written = _files(output) != before
    if ended.code is not None:
        sentence = f"The script ended with exit code {ended.code}"
    elif written and complete():
        sentence = f"The script was stopped after {request.steps} recorded steps"
    else:
        sentence = f"The script was stopped at the time limit of {request.seconds:g} s"
    sentence += f"; recorded {output}: ask for a summary of it." if written else "; nothing was recorded."
    head = {"run": str(output) if written else None, "exit_code": ended.code, "seconds": round(ended.seconds, 1)}
    return Content(head, [Items(("output",), ended.lines)], (sentence,))


def _files(folder: Path) -> dict[str, int | None]:
    """Return the recordings in a run folder, and when they were written."""
    files = folder.iterdir() if is_folder(folder) else ()
    return {file.name: modified_ns(file) for file in files if file.name.endswith(SUFFIX)}


def verify(session: Session, request: requests.Verify) -> Content:
    """Run ``perfkit verify``. The answer is what its ``--format json`` writes."""
    sides = (request.base, request.change)
    programs = [shlex.join([sys.executable, str(_script(session, side.script)), *side.arguments]) for side in sides]
    predicted = [f"--predicted-ns={','.join(map(str, request.predicted_ns))}"] if request.predicted_ns else []
    better = ["--higher-is-better"] if request.higher_is_better else []
    with tempfile.TemporaryDirectory(prefix="perfkit-") as folder:
        output = Path(folder) / "verdict.json"
        command = [
            "verify", f"--base={programs[0]}", f"--change={programs[1]}", f"--metric={request.metric}",
            f"--rounds={request.rounds}", f"--warmup={request.warmup}", f"--output={output}", *better, *predicted,
        ]  # fmt: skip
        ended = run(session, command, request.seconds)
        if ended.code is None:
            hint = "give a larger value for seconds"
            raise CaptureError(f"the time limit of {request.seconds:g} s is over; nothing was measured", hint)
        if not output.is_file():
            raise CaptureError(f"nothing was measured: {ended.lines[-1] if ended.lines else 'no output'}")
        document: dict[str, Any] = json.loads(output.read_text(encoding="utf-8"))
    lists = [Items(("views", name), rows) for name, rows in document.pop("views").items()]
    sentence = f"Verdict: {document['verify']['verdict']}."
    return Content(document, [*lists, Items(("output",), ended.lines)], (sentence,))


def _script(session: Session, text: str) -> Path:
    script = session.roots.path(text)
    if not script.is_file():
        raise UsageError(f"{text}: no such script", "name a Python file in a folder that may be read")
    return script.resolve()


def run(
    session: Session,
    arguments: Sequence[str],
    seconds: float,
    patience: float = processes.PATIENCE_SECONDS,
    complete: Callable[[], bool] = lambda: False,
) -> Ended:
    """Run a command of perfkit in the first root. End all its processes after ``seconds``, when ``complete()`` is true,
    or when the client cancels the call. They have ``patience`` seconds to save their work."""
    if not session.roots.folders:
        raise UsageError("scripts run in a local folder", "start the server with a --root on this machine")
    began = time.monotonic()
    options: dict[str, Any] = {
        "cwd": session.roots.folders[0], "stderr": subprocess.STDOUT,
        "env": processes.environment() | {"PYTHONUNBUFFERED": "1"},
    }  # fmt: skip
    with tempfile.TemporaryFile() as output:
        with processes.group(processes.python(_PERFKIT, *arguments), patience, stdout=output, **options) as process:
            code = processes.wait(process, seconds, lambda: session.cancelled.is_set() or complete())
        size = output.seek(0, os.SEEK_END)
        output.seek(max(size - _OUTPUT_BYTES, 0))
        text = output.read().decode("utf-8", "backslashreplace")
    return Ended(code, text.splitlines()[-_OUTPUT_LINES:], time.monotonic() - began)
