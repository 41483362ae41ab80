"""``perfkit record``: profiles a script that knows nothing of perfkit."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from perfkit_core.cli import options as shared
from perfkit_core.cli.numbers import Whole
from perfkit_core.errors import CaptureError, PerfkitError
from perfkit_core.paths import is_remote
from perfkit_core.plugins.manager import get_plugins

if TYPE_CHECKING:
    from perfkit_core.plugins.contracts import Recorder, Recording


@click.command(
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
    epilog="Example: perfkit record -o runs/baseline train.py --epochs 1",
)
@click.option("-o", "--output", type=shared.LOCATION, metavar="DIR",
              help="Run folder to write; made if it is not there.  [default: runs/SCRIPT-DATE-TIME]")  # fmt: skip
@click.option("--steps", type=Whole(1), default=20, show_default=True, metavar="N",
              help="Stop recording after N optimizer steps; the script goes on.")  # fmt: skip
@click.option("--shapes", is_flag=True, help="Record the shapes of operators' inputs, for --by shape.")
@click.option("--memory", is_flag=True, help="Record allocations and frees, for the views of memory.")
@click.option("--stacks", is_flag=True, help="Record Python stacks, for code, modules and --by stack; slows most.")
@click.option("--flops", is_flag=True, help="Record FLOPs of operators.")
@click.argument("script", type=click.Path(path_type=Path))
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="[ARGS]...")
def record(output: Path | None, steps: int, script: Path, arguments: tuple[str, ...], **options: bool) -> None:
    """Run SCRIPT with ARGS and record it, without changing it.

    Which framework is recorded is told by what the script imports. The exit code is the script's own; the recording is
    kept however the script ends. Times, launches and steps are always recorded; whatever else is asked for slows the
    steps, and is refused where the framework's profiler cannot record it.
    """
    from perfkit_core.cli import scripts

    if not script.is_file():
        raise CaptureError(f"{script}: no such script", "check the path")
    session = Session(output or _default_folder(script), steps, options)
    session.check(script)
    scripts.prepare(script, arguments)
    try:
        code = session.run(script)
    finally:
        files = session.finish()
    if not code and not files:
        raise CaptureError(session.nothing(script), "profile a script that trains or infers with a supported framework")
    sys.exit(code)


class Session:
    """The recording of one script: begins with the first framework that it imports."""

    def __init__(self, run_dir: Path, steps: int, options: Mapping[str, bool]) -> None:
        self.run_dir = run_dir
        self._steps = steps
        self._options = {name: True for name, wanted in options.items() if wanted}
        self._recorders: Mapping[str, Recorder] = {r.framework: r for r in get_plugins().recorders()}
        self._recording: Recording | None = None

    def check(self, script: Path) -> None:
        """Refuse what would fail only after the script has run, or break it. Raises CaptureError."""
        from perfkit_core.cli import imports
        from perfkit_core.recording import failures

        if imports.profiles_itself(script, self._recorders):
            raise CaptureError(
                f"{script} starts a profiler of its own, and a process can have only one",
                "run it with python and pass perfkit's trace_handler as on_trace_ready",
            )
        reason = failures.why_unwritable(self.run_dir)
        if reason is not None:
            raise CaptureError(f"{self.run_dir}: cannot be written ({reason})", "choose another -o")

    def run(self, script: Path) -> int:
        """Run the script under the recorder of its framework; its exit code. Raises CaptureError."""
        from perfkit_core.cli import imports, scripts

        named = [name for name in imports.imported_by(script, self._recorders) if imports.installed(name)]
        if named:
            self._begin(named[0])
            return scripts.run(script)
        with imports.FirstImport(self._recorders, self._begin):
            return scripts.run(script)

    def _begin(self, framework: str) -> None:
        try:
            self._recording = self._recorders[framework].start(self.run_dir.absolute(), self._steps, self._options)
        except PerfkitError:
            raise
        except Exception as error:  # a plugin may raise anything
            raise CaptureError(f"{framework} cannot be recorded ({type(error).__name__}: {error})") from error

    def finish(self) -> int:
        """End the recording, say where it is, and return the number of its files. Raises CaptureError."""
        try:
            files = self._recording.finish() if self._recording is not None else 0
        finally:
            self._remove_empty()
        if files:
            click.echo(f"perfkit: recorded {self.run_dir}; next: perfkit report {self.run_dir}", err=True)
        return files

    def _remove_empty(self) -> None:
        if not is_remote(self.run_dir):  # a store has no empty folders
            with contextlib.suppress(OSError):
                self.run_dir.rmdir()  # only when nothing is in it

    def nothing(self, script: Path) -> str:
        """Why there is no recording."""
        if self._recording is not None:
            return f"{script}: nothing could be recorded"
        known = ", ".join(self._recorders) or "none, no adapter is installed"
        return f"{script} imported no framework that perfkit can record (known: {known})"


def _default_folder(script: Path) -> Path:
    return Path("runs") / f"{script.stem}-{time.strftime('%Y%m%d-%H%M%S')}"
