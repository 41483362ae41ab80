"""``perfkit record``: profiles a script that knows nothing of perfkit.

Runs the script as Python itself would, under the recorder of the framework that it imports.
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
from typing import TYPE_CHECKING

import click

from perfkit_core.cli import main
from perfkit_core.cli import options as shared
from perfkit_core.errors import CaptureError, PerfkitError
from perfkit_core.plugins.manager import get_plugins
from perfkit_core.system import packages, paths

if TYPE_CHECKING:
    from perfkit_core.plugins.contracts import Recorder, Recording


@click.command(
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
    epilog="Example: perfkit record -o runs/baseline train.py --epochs 1",
)
@click.option("-o", "--output", type=shared.LOCATION, metavar="DIR",
              help="Run folder to write; created if missing.  [default: runs/SCRIPT-DATE-TIME]")  # fmt: skip
@click.option("--steps", type=shared.Whole(1), default=20, show_default=True, metavar="N",
              help="Stop recording after N optimizer steps; the script continues.")  # fmt: skip
@click.option("--shapes", is_flag=True, help="Record the shapes of operators' inputs, for --by shape.")
@click.option("--memory", is_flag=True, help="Record allocations and frees, for the views of memory.")
@click.option("--stacks", is_flag=True, help="Record Python stacks, for the views code and modules and for --by stack; "
              "the slowest option.")  # fmt: skip
@click.option("--flops", is_flag=True, help="Record FLOPs of operators.")
@click.argument("script", type=click.Path(path_type=Path))
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="[ARGS]...")
def record(output: Path | None, steps: int, script: Path, arguments: tuple[str, ...], **options: bool) -> None:
    """Run SCRIPT with ARGS and record it, without changing it.

    Records the framework that the script imports. The exit code is that of the script; the recording is kept however
    the script ends. Times, launches and steps are always recorded; each option slows the steps, and is refused if the
    framework's profiler cannot record it.
    """
    if not script.is_file():
        raise CaptureError(f"{script}: no such file", "check the path")
    folder = output or Path("runs") / f"{script.stem}-{time.strftime('%Y%m%d-%H%M%S')}"
    session = Session(folder, steps, options)
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
                f"{script} starts its own profiler, and a process can have only one",
                "run it with python and pass perfkit's trace_handler as on_trace_ready",
            )
        reason = failures.why_unwritable(self.run_dir)
        if reason is not None:
            raise CaptureError(f"{self.run_dir}: cannot be written ({reason})", "choose another -o")

    def run(self, script: Path) -> int:
        """Run the script under the recorder of its framework; return its exit code. Raises CaptureError."""
        named = [name for name in imported_by(script, self._recorders) if installed(name)]
        if named:
            self._begin(named[0])
            return run(script)
        with packages.FirstImport(self._recorders, self._begin):
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
            if not paths.is_remote(self.run_dir):  # a store has no empty folders
                with contextlib.suppress(OSError):  # only an empty folder can be removed
                    self.run_dir.rmdir()
        if files:
            click.echo(f"perfkit: recorded {self.run_dir}; next: perfkit report {self.run_dir}", err=True)
        return files

    def nothing(self, script: Path) -> str:
        """Say why there is no recording."""
        if self._recording is not None:
            return f"{script}: nothing could be recorded"
        known = ", ".join(self._recorders) or "none, no adapter is installed"
        return f"{script} imported no framework that perfkit can record (known: {known})"


def prepare(script: Path, arguments: Sequence[str]) -> None:
    """Set ``sys.argv``, ``sys.path[0]`` and garbage collection as ``python script arguments`` has them."""
    main.collect_as_usual()
    sys.argv = [str(script), *arguments]
    sys.path[:1] = [str(script.resolve().parent)]


def run(script: Path) -> int:
    """Run the script as ``__main__`` and return its exit code. Its errors print their own traceback.

    Raises only PerfkitError, when recording could not begin.
    """
    try:
        runpy.run_path(str(script), run_name="__main__")
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return end.code or 0
        print(end.code, file=sys.stderr)
        return 1
    except PerfkitError:
        raise
    except BaseException as error:
        # from the script's first frame on: how perfkit runs it would only confuse
        frames = error.__traceback__
        while frames is not None and frames.tb_frame.f_code.co_filename != str(script):
            frames = frames.tb_next
        error = error.with_traceback(frames)
        sys.excepthook(type(error), error, error.__traceback__)
        return main.INTERRUPTED if isinstance(error, KeyboardInterrupt) else 1
    return 0


def _parsed(script: Path) -> ast.AST:
    """Return the syntax tree; an empty one for a script with errors, as Python reports them better when it runs."""
    try:
        return ast.parse(script.read_bytes())
    except (SyntaxError, ValueError):
        return ast.Module([], [])


def imported_by(script: Path, wanted: Collection[str]) -> list[str]:
    """Return those of ``wanted`` that the script's own text imports anywhere, in its order."""
    imports = [node for node in ast.walk(_parsed(script)) if isinstance(node, (ast.Import, ast.ImportFrom))]
    modules: list[str] = []
    for node in sorted(imports, key=lambda node: node.lineno):
        if isinstance(node, ast.Import):
            modules += [alias.name for alias in node.names]
        elif node.module and not node.level:
            modules.append(node.module)
    names = dict.fromkeys(module.split(".")[0] for module in modules)
    return [name for name in names if name in wanted]


_PROFILERS = ("profile", "Profiler")
_UNCERTAIN = (
    ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.If, ast.IfExp, ast.BoolOp, ast.Match, ast.Try, ast.For,
    ast.While, ast.comprehension,
)  # fmt: skip
"""Nodes whose content may run or not."""


def profiles_itself(script: Path, frameworks: Collection[str]) -> bool:
    """Whether the script certainly makes a profiler of one of the frameworks (``torch.profiler.profile()``, …): in a
    line that always runs, neither in a function nor in a branch."""
    tree = _parsed(script)
    modules: set[str] = set()
    classes: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            modules |= {alias.asname for alias in node.names if alias.asname and "profiler" in alias.name.split(".")}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in frameworks:
            inside = "profiler" in (node.module or "").split(".")
            modules |= {alias.asname or alias.name for alias in node.names if alias.name == "profiler"}
            classes |= {alias.asname or alias.name for alias in node.names if inside and alias.name in _PROFILERS}
    for node in _certain(tree):
        called = node.func if isinstance(node, ast.Call) else None
        if isinstance(called, ast.Name) and called.id in classes:
            return True
        if isinstance(called, ast.Attribute) and called.attr in _PROFILERS:
            base = called.value
            if isinstance(base, ast.Attribute) and base.attr == "profiler":
                return True
            if isinstance(base, ast.Name) and base.id in modules:
                return True
    return False


def _certain(node: ast.AST) -> Iterator[ast.AST]:
    """Yield what is below a node and runs with it."""
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, _UNCERTAIN):
            yield child
            yield from _certain(child)


def installed(name: str) -> bool:
    """Whether a top-level module can be found, without importing it."""
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):
        return False
