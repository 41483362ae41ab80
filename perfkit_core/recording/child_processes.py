"""Recording of the processes that a recorded script starts: launchers such as torchrun, ``spawn``, Ray.

Python imports a file ``sitecustomize`` when it starts. ``perfkit record`` puts a folder with such a file on
``PYTHONPATH``, which the processes inherit. A process is recorded as a rank of the run if it makes steps. Processes
that are started with ``python -I``, or on other machines, are not reached."""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from perfkit_core.base.system.packages import FirstImport

VARIABLE: Final = "PERFKIT_RECORD_CHILDREN"
"""Environment variable: what to record in processes of the script, as JSON."""
_PATH: Final = "PYTHONPATH"
_SITE: Final = str(Path(__file__).with_name("child_site"))


@contextlib.contextmanager
def recorded_children(
    run_dir: Path, steps: int, options: Mapping[str, Any], frameworks: Sequence[str]
) -> Iterator[None]:
    """Let the processes that this process starts in the ``with`` block record themselves into ``run_dir``. Options that
    are no texts or numbers, such as a function of the script, are left out."""
    plain = {name: value for name, value in options.items() if isinstance(value, (str, int))}
    request = {"run_dir": str(run_dir), "steps": steps, "options": plain, "frameworks": list(frameworks)}
    before = {name: os.environ.get(name) for name in (VARIABLE, _PATH)}
    os.environ[VARIABLE] = json.dumps(request)
    os.environ[_PATH] = os.pathsep.join(filter(None, (_SITE, before[_PATH])))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def begin() -> None:
    """Record this process when it imports a framework. Never raises."""
    with contextlib.suppress(Exception):  # a text that perfkit did not write
        request = json.loads(os.environ.get(VARIABLE, ""))
        hook = FirstImport(request["frameworks"], lambda name: _record(name, request))
        hook.__enter__()


def _record(framework: str, request: Mapping[str, Any]) -> None:
    from perfkit_core.base.system import failures

    try:
        from perfkit_core.base.system.paths import as_path
        from perfkit_core.plugins.manager import get_plugins
        from perfkit_core.recording.step_calls import CHILD

        recorder = get_plugins().framework(framework).recorder()
        if recorder is None:
            return
        options = {**request["options"], CHILD: True}
        recording = recorder.start(as_path(request["run_dir"]), request["steps"], options)
    except Exception as error:
        failures.log(f"the process {os.getpid()} cannot be recorded", error)
        return
    pid = os.getpid()

    def finish() -> None:
        if os.getpid() == pid:  # a forked process does not have the recording
            with contextlib.suppress(Exception):  # the script started a profiler of its own
                recording.finish()

    atexit.register(finish)


def used_cpu_s() -> float:
    """Return the CPU time of the processes that this process has started and that have ended, in s."""
    if sys.platform == "win32":
        return 0.0
    import resource

    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime
