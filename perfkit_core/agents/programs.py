"""The tools that run scripts: they run the commands of perfkit in a new process with a time limit."""

from __future__ import annotations

import json
import os
import shlex
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from perfkit_core.agents import requests
from perfkit_core.agents.answers import Content, Items
from perfkit_core.agents.session import Session
from perfkit_core.errors import CaptureError, UsageError
from perfkit_core.verify import runs

_OUTPUT_LINES: Final = 200
"""Maximum number of lines of a program's output that an answer has: the last ones."""
_OUTPUT_BYTES: Final = 1 << 20
_PERFKIT: Final = "import sys; from perfkit_core.cli.main import main; sys.exit(main(sys.argv[1:]))"
_FOLDER: Final = "runs"


def record(session: Session, request: requests.Record) -> Content:
    """Run ``perfkit record``. The answer has the run folder, the exit code and the last lines of the output."""
    script = _script(session, request.script)
    name = f"{_FOLDER}/{script.stem}-{time.strftime('%Y%m%d-%H%M%S')}"
    output = session.roots.place(request.output or name)
    flags = [f"--{name}" for name in ("shapes", "memory", "stacks", "flops") if getattr(request, name)]
    step_on = [f"--step-on={request.step_on}"] if request.step_on else []
    command = ["record", f"--output={output}", f"--steps={request.steps}", *flags, *step_on, "--", str(script)]
    code, lines, seconds = run(session, [*command, *request.arguments], request.seconds)
    written = output.is_dir() and any(output.iterdir())
    sentence = f"The script ended with exit code {code}; "
    sentence += f"recorded {output}: ask for a summary of it." if written else "nothing was recorded."
    head = {"run": str(output) if written else None, "exit_code": code, "seconds": round(seconds, 1)}
    return Content(head, [Items(("output",), lines)], (sentence,))


def verify(session: Session, request: requests.Verify) -> Content:
    """Run ``perfkit verify``. The answer is what its ``--format json`` writes."""
    sides = (request.base, request.change)
    programs = [shlex.join([sys.executable, str(_script(session, one.script)), *one.arguments]) for one in sides]
    predicted = [f"--predicted-ns={','.join(map(str, request.predicted_ns))}"] if request.predicted_ns else []
    better = ["--higher-is-better"] if request.higher_is_better else []
    with tempfile.TemporaryDirectory(prefix="perfkit-") as folder:
        output = Path(folder) / "verdict.json"
        command = [
            "verify", f"--base={programs[0]}", f"--change={programs[1]}", f"--metric={request.metric}",
            f"--rounds={request.rounds}", f"--warmup={request.warmup}", f"--output={output}", *better, *predicted,
        ]  # fmt: skip
        _, lines, _ = run(session, command, request.seconds)
        if not output.is_file():
            raise CaptureError(f"nothing was measured: {lines[-1] if lines else 'no output'}")
        document: dict[str, Any] = json.loads(output.read_text(encoding="utf-8"))
    lists = [Items(("views", name), rows) for name, rows in document.pop("views").items()]
    sentence = f"Verdict: {document['verify']['verdict']}."
    return Content(document, [*lists, Items(("output",), lines)], (sentence,))


def _script(session: Session, text: str) -> Path:
    script = session.roots.place(text)
    if not script.is_file():
        raise UsageError(f"{text}: no such script", "name a Python file in a folder that may be read")
    return script.resolve()


def run(session: Session, arguments: Sequence[str], seconds: float) -> tuple[int, list[str], float]:
    """Run a command of perfkit in the first root. Return its exit code, the last lines of its output, and the elapsed
    time in seconds. Raises CaptureError if it takes longer than ``seconds``; all its processes are then ended."""
    folder, began = str(session.roots.folders[0]), time.monotonic()
    command = f"cd {shlex.quote(folder)} && exec {shlex.join([sys.executable, '-c', _PERFKIT, *arguments])}"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "PYTHONUNBUFFERED": "1"}
    with tempfile.TemporaryFile() as output:
        try:
            code = runs.exit_code(command, environment, output, output, seconds)
        except CaptureError:
            raise CaptureError(f"the time limit of {seconds:g} s is over", "give a larger value for seconds") from None
        size = output.seek(0, os.SEEK_END)
        output.seek(max(size - _OUTPUT_BYTES, 0))
        text = output.read().decode("utf-8", "backslashreplace")
    return code, text.splitlines()[-_OUTPUT_LINES:], time.monotonic() - began
