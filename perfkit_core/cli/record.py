"""``perfkit record``: profile an unmodified script.

The script runs as with ``python SCRIPT``, but under the recorder of the framework that it imports.
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
              help="Write the recording to this run folder, which is created if it does not exist.  "
              "[default: runs/SCRIPT-DATE-TIME]")  # fmt: skip
@click.option("--steps", type=shared.Whole(1), default=20, show_default=True, metavar="N",
              help="Stop recording after N optimizer steps. The script runs on without recording.")  # fmt: skip
@click.option("--shapes", is_flag=True, help="Record the input shapes of operators. --by shape needs them.")
@click.option("--memory", is_flag=True, help="Record memory allocations and frees. The memory views need them.")
@click.option("--stacks", is_flag=True, help="Record Python stacks, for the views code and modules and for --by "
              "stack. Of all options, this one slows the steps the most.")  # fmt: skip
@click.option("--flops", is_flag=True, help="Record the FLOPs of operators.")
@click.argument("script", type=click.Path(path_type=Path))
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="[ARGS]...")
def record(output: Path | None, steps: int, script: Path, arguments: tuple[str, ...], **options: bool) -> None:
    """Run SCRIPT with ARGS and record it. The script needs no change.

    perfkit records with the profiler of the framework that the script imports. The exit code is the exit code of the
    script. The recording is kept even if the script fails. Times, launches and steps are always recorded. Each of the
    options --shapes, --memory, --stacks and --flops slows the steps; perfkit rejects an option that the framework's
    profiler does not support.
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
    """The recording of one script. It begins when the script imports a framework."""

    def __init__(self, run_dir: Path, steps: int, options: Mapping[str, bool]) -> None:
        self.run_dir = run_dir
        self._steps = steps
        self._options = {name: True for name, wanted in options.items() if wanted}
        self._recorders: Mapping[str, Recorder] = {r.framework: r for r in get_plugins().recorders()}
        self._recording: Recording | None = None

    def check(self, script: Path) -> None:
        """Raise CaptureError if the script itself starts a profiler, or if the run folder is not writable."""
        from perfkit_core.system import failures

        if profiles_itself(script, self._recorders):
            raise CaptureError(
                f"{script} starts a profiler itself, and a process can have only one profiler",
                "run the script with python, and pass perfkit's trace_handler to its profiler as on_trace_ready",
            )
        reason = failures.why_unwritable(self.run_dir)
        if reason is not None:
            raise CaptureError(f"{self.run_dir}: cannot be written ({reason})", "choose another folder with -o")

    def run(self, script: Path) -> int:
        """Run the script under the recorder of its framework, and return its exit code. Raises CaptureError."""
        imported = [name for name in imported_by(script, self._recorders) if installed(name)]
        if imported:
            self._begin(imported[0])
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
        """End the recording, print its folder, and return the number of files. Raises CaptureError."""
        try:
            files = self._recording.finish() if self._recording is not None else 0
        finally:
            if not paths.is_remote(self.run_dir):  # a remote store has no empty folders
                with contextlib.suppress(OSError):  # rmdir fails if the folder is not empty
                    self.run_dir.rmdir()
        if files:
            click.echo(f"perfkit: recorded {self.run_dir}; next: perfkit report {self.run_dir}", err=True)
        return files

    def nothing(self, script: Path) -> str:
        """Return the reason why no file was recorded."""
        if self._recording is not None:
            return f"{script}: nothing could be recorded"
        known = ", ".join(self._recorders) or "none, because no adapter is installed"
        return f"{script} imported no framework that perfkit can record (known frameworks: {known})"


def prepare(script: Path, arguments: Sequence[str]) -> None:
    """Set ``sys.argv``, ``sys.path[0]`` and garbage collection as ``python SCRIPT ARGS`` would set them."""
    main.collect_as_usual()
    sys.argv = [str(script), *arguments]
    sys.path[:1] = [str(script.resolve().parent)]


def run(script: Path) -> int:
    """Run the script as ``__main__`` and return its exit code. If the script raises, its traceback is printed.

    Raises only PerfkitError, and only if the recording cannot begin.
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
        # The traceback begins at the script's first frame. The frames of perfkit are left out.
        frames = error.__traceback__
        while frames is not None and frames.tb_frame.f_code.co_filename != str(script):
            frames = frames.tb_next
        error = error.with_traceback(frames)
        sys.excepthook(type(error), error, error.__traceback__)
        return main.INTERRUPTED if isinstance(error, KeyboardInterrupt) else 1
    return 0


def _parsed(script: Path) -> ast.AST:
    try:
        return ast.parse(script.read_bytes())
    except (SyntaxError, ValueError):
        return ast.Module([], [])  # not valid Python; running the script shows the syntax error


def imported_by(script: Path, wanted: Collection[str]) -> list[str]:
    """Return the modules in ``wanted`` that the script imports, in the order of its import statements."""
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
_MAY_NOT_RUN = (
    ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.If, ast.IfExp, ast.BoolOp, ast.Match, ast.Try, ast.For,
    ast.While, ast.comprehension,
)  # fmt: skip


def profiles_itself(script: Path, frameworks: Collection[str]) -> bool:
    """Return whether the script creates a profiler of one of the frameworks, such as ``torch.profiler.profile()``.
    Statements in functions and branches are not searched."""
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
    for node in _always_run(tree):
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


def _always_run(node: ast.AST) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, _MAY_NOT_RUN):
            yield child
            yield from _always_run(child)


def installed(name: str) -> bool:
    """Return whether a top-level module is installed. The module is not imported."""
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):
        return False
