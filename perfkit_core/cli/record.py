"""``perfkit record``: profiles a script that knows nothing of perfkit.

Runs a user's script as Python itself would, and tells how it ended.

Which of some modules does a script import? Told by its text, or noticed while it runs.
"""

from __future__ import annotations

import ast
import contextlib
import importlib.util
import runpy
import sys
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

import click

from perfkit_core.cli import options as shared
from perfkit_core.cli.main import collect_as_usual
from perfkit_core.cli.options import Whole
from perfkit_core.errors import CaptureError, PerfkitError
from perfkit_core.plugins.manager import get_plugins
from perfkit_core.system.packages import FirstImport
from perfkit_core.system.paths import is_remote

if TYPE_CHECKING:
    from perfkit_core.plugins.contracts import Recorder, Recording

INTERRUPTED = 130


def prepare(script: Path, arguments: Sequence[str]) -> None:
    """``sys.argv``, ``sys.path[0]`` and the collection of garbage as ``python script arguments`` has them."""
    collect_as_usual()
    sys.argv = [str(script), *arguments]
    sys.path[:1] = [str(script.resolve().parent)]


def run(script: Path) -> int:
    """Run the script as ``__main__`` and return its exit code. Its errors print their own traceback.

    Raises only PerfkitError, when recording could not begin.
    """
    try:
        runpy.run_path(str(script), run_name="__main__")
    except SystemExit as end:
        return _exit_code(end)
    except PerfkitError:
        raise
    except BaseException as error:
        error = error.with_traceback(_inside(script, error.__traceback__))
        sys.excepthook(type(error), error, error.__traceback__)
        return INTERRUPTED if isinstance(error, KeyboardInterrupt) else 1
    return 0


def _exit_code(end: SystemExit) -> int:
    if end.code is None or isinstance(end.code, int):
        return end.code or 0
    print(end.code, file=sys.stderr)
    return 1


def _inside(script: Path, traceback: TracebackType | None) -> TracebackType | None:
    """The traceback from the script's first frame on: how perfkit called it is no concern of the user."""
    while traceback is not None and traceback.tb_frame.f_code.co_filename != str(script):
        traceback = traceback.tb_next
    return traceback


__all__ = ["FirstImport", "imported_by", "installed", "profiles_itself"]


def imported_by(script: Path, wanted: Collection[str]) -> list[str]:
    """Those of ``wanted`` that the script's own text imports anywhere, in its order. None for a script with errors."""
    try:
        tree = ast.parse(script.read_bytes())
    except (SyntaxError, ValueError):  # running it tells the user better
        return []
    nodes = sorted((node for node in ast.walk(tree) if isinstance(node, (ast.Import, ast.ImportFrom))), key=_line)
    found = dict.fromkeys(name for node in nodes for name in _top_level(node))
    return [name for name in found if name in wanted]


def profiles_itself(script: Path, frameworks: Collection[str]) -> bool:
    """Whether the script surely makes a profiler of one of the frameworks (``torch.profiler.profile()``, …): in a line
    that runs whatever comes, neither in a function nor in a branch."""
    try:
        tree = ast.parse(script.read_bytes())
    except (SyntaxError, ValueError):
        return False
    modules: set[str] = set()
    classes: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            modules |= {alias.asname for alias in node.names if alias.asname and "profiler" in alias.name.split(".")}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in frameworks:
            inside = "profiler" in (node.module or "").split(".")
            modules |= {alias.asname or alias.name for alias in node.names if alias.name == "profiler"}
            classes |= {alias.asname or alias.name for alias in node.names if inside and alias.name in _PROFILERS}
    return any(_is_profiler(node.func, modules, classes) for node in _certain(tree) if isinstance(node, ast.Call))


_PROFILERS = ("profile", "Profiler")
_UNCERTAIN = (
    ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.If, ast.IfExp, ast.BoolOp, ast.Match, ast.Try, ast.For,
    ast.While, ast.comprehension,
)  # fmt: skip
"""What is in them may run or not."""


def _certain(node: ast.AST) -> Iterator[ast.AST]:
    """What is below a node and runs with it."""
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, _UNCERTAIN):
            yield child
            yield from _certain(child)


def _is_profiler(node: ast.expr, modules: Collection[str], classes: Collection[str]) -> bool:
    if isinstance(node, ast.Name):
        return node.id in classes
    if not isinstance(node, ast.Attribute) or node.attr not in _PROFILERS:
        return False
    base = node.value
    return (isinstance(base, ast.Attribute) and base.attr == "profiler") or (
        isinstance(base, ast.Name) and base.id in modules
    )


def installed(name: str) -> bool:
    """Whether a top-level module can be found, without importing it."""
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):
        return False


def _line(node: ast.AST) -> int:
    return getattr(node, "lineno", 0)


def _top_level(node: ast.Import | ast.ImportFrom) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name.split(".")[0] for alias in node.names)
    elif node.module and not node.level:
        yield node.module.split(".")[0]


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

    if not script.is_file():
        raise CaptureError(f"{script}: no such script", "check the path")
    session = Session(output or _default_folder(script), steps, options)
    session.check(script)
    prepare(script, arguments)
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
        from perfkit_core.system import failures

        if profiles_itself(script, self._recorders):
            raise CaptureError(
                f"{script} starts a profiler of its own, and a process can have only one",
                "run it with python and pass perfkit's trace_handler as on_trace_ready",
            )
        reason = failures.why_unwritable(self.run_dir)
        if reason is not None:
            raise CaptureError(f"{self.run_dir}: cannot be written ({reason})", "choose another -o")

    def run(self, script: Path) -> int:
        """Run the script under the recorder of its framework; its exit code. Raises CaptureError."""

        named = [name for name in imported_by(script, self._recorders) if installed(name)]
        if named:
            self._begin(named[0])
            return run(script)
        with FirstImport(self._recorders, self._begin):
            return run(script)

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
