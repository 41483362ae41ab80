"""``perfkit record``: profile an unmodified script.

The script runs as with ``python SCRIPT``, but under the recorder of the framework that it imports."""

from __future__ import annotations

import ast
import builtins
import contextlib
import importlib.util
import os
import runpy
import statistics
import sys
import threading
import time
import uuid
import warnings
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from types import ModuleType, TracebackType
from typing import TYPE_CHECKING, Any, Final, NoReturn

import click

from perfkit_core.base.language.messages import render
from perfkit_core.base.language.units import counted
from perfkit_core.base.system import packages, paths, processes
from perfkit_core.cli import main
from perfkit_core.cli import options as shared
from perfkit_core.cli.output import echo
from perfkit_core.errors import CaptureError, PerfkitError
from perfkit_core.plugins.frameworks import Recorded
from perfkit_core.plugins.manager import get_plugins
from perfkit_core.recording import signals
from perfkit_core.recording.child_processes import recorded_children, used_cpu_s
from perfkit_core.recording.step_calls import JOB, LIMIT, OPTION, StepCalls, step_end

if TYPE_CHECKING:
    from perfkit_core.plugins.frameworks import Recording

_MUCH_CPU_S: Final = 5.0
"""CPU time of other processes that is too much for compilers and other tools."""
_STORED, _PENDING = ".parquet", ".pending"
"""Suffixes of the files of cycles that are stored, and of cycles that are not stored yet, or were lost."""
RUNS: Final = "runs"
"""Folder below which recordings are written by default."""


@click.command(
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
    epilog="Example: perfkit record -o runs/baseline train.py --epochs 1",
)
@click.option("-o", "--output", type=shared.LOCATION, metavar="DIR",
              help="Write the recording to this run folder, which is created if it does not exist.  "
              "[default: runs/SCRIPT-DATE-TIME]")  # fmt: skip
@click.option("--steps", type=shared.WholeNumber(1), default=20, show_default=True, metavar="N",
              help="Stop recording after N steps. The script runs on without recording.")  # fmt: skip
@click.option("--step-on", metavar="FUNCTION|RANGE",
              help="A step ends when this function returns (train.py:train_step, package.module:Class.method), or at "
              "the end of each range of this name that the script labels.  [default: with each update of the first "
              "optimizer, each backward pass without one, or each run of the first static program]")  # fmt: skip
@click.option("--max-events", type=shared.WholeNumber(1), metavar="N",
              help="End the recording if it would have more than about N events. It also ends if its events would "
              "need more memory than is free.  [default: 1250000 in torch, 4000000 in Paddle]")  # fmt: skip
@click.option("-m", "--module", is_flag=True, help="SCRIPT is the name of a module, as in python -m.")
@click.option("--shapes", is_flag=True, help="Record the input shapes of operators. --by shape needs them.")
@click.option("--memory", is_flag=True, help="Record memory allocations and frees. The memory views need them.")
@click.option("--stacks", is_flag=True, help="Record Python stacks, for the views code and modules and for --by "
              "stack. Of all options, this one slows the steps the most.")  # fmt: skip
@click.option("--flops", is_flag=True, help="Record the FLOPs of operators.")
@click.argument("script")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="[ARGS]...")
def record(
    output: Path | None, steps: int, step_on: str | None, max_events: int | None, module: bool, script: str,
    arguments: tuple[str, ...], **options: bool,
) -> None:  # fmt: skip
    """Run SCRIPT with ARGS and record it. The script needs no change.

    perfkit records with the profiler of the framework that the script imports. The exit code is the exit code of the
    script. The recording is kept even if the script fails. Times, launches and steps are always recorded. Each of the
    options --shapes, --memory, --stacks and --flops slows the steps; perfkit rejects an option that the framework's
    profiler does not support."""
    path = Path(str(module_spec(script).origin)) if module else Path(script)
    if not path.is_file():
        named = all(map(str.isidentifier, script.split("."))) and not script.endswith(".py")
        hint = "add --module to run a module" if named else "check the path"
        raise CaptureError(f"{script}: no such file", hint)
    program = Program(path.absolute(), script if module else "", step_on and step_end(step_on, script, str(path)))
    folder = output or Path(RUNS) / f"{path.stem}-{time.strftime('%Y%m%d-%H%M%S')}"
    more = {OPTION: program.step_on, LIMIT: max_events, JOB: uuid.uuid4().hex[:12]}
    session = Session(folder, steps, {**options, **more})
    session.check(path)
    program.check()
    session.tell_older()
    prepare(program, (str(path) if module else script, *arguments))
    try:
        code = session.run(program)
    finally:
        recorded = session.finish()
    if not code and not recorded.files:
        raise CaptureError(session.nothing(path), "profile a script that trains or infers with a supported framework")
    signals.end_by_signal(code)
    sys.exit(code)


def module_spec(name: str) -> ModuleSpec:
    """Return the spec of the file that ``python -m NAME`` runs. Raises CaptureError if there is no such module."""
    _search(Path.cwd())
    try:
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.submodule_search_locations is not None:
            spec = importlib.util.find_spec(f"{name}.__main__")
    except (ImportError, ValueError) as error:
        raise CaptureError(f"{name}: the module cannot be found ({error})", "check its name") from None
    if spec is None or not spec.has_location or spec.origin is None:
        raise CaptureError(f"{name}: no such module that can be run", "check its name")
    return spec


@dataclass(frozen=True)
class Program:
    """The recorded script. ``module``: its name if it runs as with ``python -m``, else ``""``. ``step_on``: the
    function or the range that ends steps, None for the updates of the first optimizer."""

    script: Path
    module: str = ""
    step_on: StepCalls | str | None = None

    def check(self) -> None:
        """Raise UsageError if the script has no function ``step_on``."""
        with contextlib.suppress(SyntaxError, ValueError), warnings.catch_warnings(action="ignore"):
            self._code()  # running the script shows its errors and warnings

    def execute(self) -> None:
        """Run the script as ``__main__``, as Python does: its module stays for what runs at the end of the process.
        Raises what the script raises."""
        if self.script.suffix in (".pyc", ".pyz") and not self.module:
            runpy.run_path(str(self.script), run_name="__main__")
            return
        code, spec, file = self._code(), module_spec(self.module) if self.module else None, str(self.script)
        main = sys.modules["__main__"] = ModuleType("__main__")
        main.__spec__, main.__package__ = spec, spec.parent if spec else None
        main.__loader__ = spec.loader if spec else SourceFileLoader("__main__", file)
        vars(main).update(__file__=file, __cached__=spec and spec.cached, __builtins__=builtins, __annotations__={})
        vars(main).update(self.step_on.names() if isinstance(self.step_on, StepCalls) else {})
        exec(code, vars(main))

    def _code(self) -> Any:
        source = self.script.read_bytes()
        if isinstance(self.step_on, StepCalls) and not self.step_on.module:
            return self.step_on.compiled(source, str(self.script))
        return compile(source, str(self.script), "exec", dont_inherit=True)


class Session:
    """The recording of one script. It begins when the script imports a framework."""

    def __init__(self, run_dir: Path, steps: int, options: Mapping[str, Any]) -> None:
        self.run_dir = run_dir
        self._folder = paths.as_path(paths.absolute(run_dir))  # the script may change the current folder
        self._steps = steps
        self._options = {name: value for name, value in options.items() if value}
        self.frameworks = get_plugins().recordable()
        self._recording: Recording | None = None
        self._refused: PerfkitError | None = None
        self._before = self._files(_STORED)
        self._killed_before = self._files(_PENDING)

    def check(self, script: Path) -> None:
        """Raise CaptureError if the script itself starts a profiler, or if the run folder is not writable."""
        if profiles_itself(script, self.frameworks):
            raise CaptureError(
                f"{script} starts a profiler itself, and a process can have only one profiler",
                "run the script with python, and pass perfkit's trace_handler to its profiler as on_trace_ready",
            )
        self.check_folder()

    def tell_older(self) -> None:
        """Print a line if the run folder already has a recording, of which reports read only the latest."""
        if self._before:
            text = f"{self.run_dir} already has a recording, and reports read only the latest of a folder"
            echo(f"perfkit: {text}", err=True)

    def check_folder(self) -> None:
        """Raise CaptureError if the run folder is not writable."""
        from perfkit_core.base.system import failures

        reason = failures.why_unwritable(self.run_dir)
        if reason is not None:
            raise CaptureError(f"{self.run_dir}: cannot be written ({reason})", "choose another folder with -o")

    def run(self, program: Program) -> int:
        """Run the script under the recorder of its framework, and return its exit code. Raises CaptureError."""
        with contextlib.ExitStack() as hooks:
            step_on = program.step_on
            if isinstance(step_on, StepCalls) and step_on.module in sys.modules:
                step_on.wrap_imported(step_on.module)
            elif isinstance(step_on, StepCalls) and step_on.module:
                hooks.enter_context(packages.FirstImport([step_on.module], step_on.wrap_imported))
            hooks.enter_context(recorded_children(self._folder, self._steps, self._options, self.frameworks))
            names = [name for name in imported_by(program.script, self.frameworks) if packages.installed(name)]
            # a package that the script uses may import another framework first, if it is installed, too
            names = names or self.frameworks
            # importing the package of a module may already have imported a framework
            if imported := [name for name in names if name in sys.modules]:
                self.begin(imported[0])
            else:
                hooks.enter_context(packages.FirstImport(names, self.begin))
            pid, leave = os.getpid(), os._exit

            def finish_and_leave(status: int) -> NoReturn:  # only the main thread can end every recording
                try:
                    if os.getpid() == pid and threading.current_thread() is threading.main_thread():
                        with contextlib.suppress(PerfkitError):
                            self.finish()
                        sys.stderr.flush()
                finally:
                    leave(status)

            hooks.callback(setattr, os, "_exit", leave)
            os._exit = finish_and_leave
            return run(program)

    def begin(self, framework: str) -> None:
        """Begin to record a framework that was just imported. The variables that its import reads are thus set by the
        script. Raises CaptureError, and UsageError for an option that the framework does not support."""
        try:
            recorder = get_plugins().framework(framework).recorder()
            if recorder is None:  # its plugin is broken
                raise CaptureError(f"{framework} cannot be recorded", "perfkit plugins shows why")
            self._recording = recorder.start(self._folder, self._steps, self._options)
        except PerfkitError as error:
            self._refused = error  # the script may catch it
            raise
        except Exception as error:  # a plugin may raise anything
            self._refused = CaptureError(f"{framework} cannot be recorded ({type(error).__name__}: {error})")
            raise self._refused from error

    def finish(self) -> Recorded:
        """End the recording, print what was recorded, and return it. Raises CaptureError."""
        if getattr(sys.stderr, "closed", False):  # by the script; the descriptor is usually still open
            try:
                sys.stderr = open(2, "w", closefd=False)  # noqa: SIM115 (as long as the process)
            except OSError:
                sys.stderr = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115
        children = self._children()
        own = f"-{os.getpid()}-"
        killed = sum(own not in path.name for path in self._files(_PENDING) - self._killed_before)
        recorded = self.end(alone=not children and not killed)
        what = ""
        if children:
            what = (
                f" of {_processes(len(children) + bool(recorded.steps))}{_ranks(self._files(_STORED) - self._before)}"
            )
        if children and not recorded.steps:
            recorded = _of_children(children)
        if killed:
            text = f"{_processes(killed)} made steps, but did not complete {counted(self._steps, 'step')}"
            if not recorded.steps:
                raise CaptureError(f"{self.run_dir}: {text}", "record fewer with --steps N")
            echo(f"perfkit: {text}: record fewer with --steps N", err=True)
        elif recorded.files and not recorded.steps and used_cpu_s() > _MUCH_CPU_S:
            text = f"{self.run_dir}: only the process of the script was recorded, and it made no steps: its other "
            raise CaptureError(
                f"{text}processes ran for {used_cpu_s():.0f} s, and none of them could be recorded",
                "wrap the loop in them with perfkit.profile (see perfkit record in docs/recording.md)",
            )
        if recorded.files:
            command = f"perfkit summary {processes.shell_path(self.run_dir)}"
            for line in (*described(recorded, what, self.run_dir), f"next: {command}"):
                echo(f"perfkit: {line}", err=True)
        return recorded

    def _files(self, suffix: str) -> set[Path]:
        """Return the files of the run folder with this suffix. The module that knows the names of stored cycles imports
        numpy, and a script sets variables that numpy reads."""
        if paths.is_remote(self.run_dir):  # listing a store may take long
            return set()
        with contextlib.suppress(OSError):  # the folder does not exist
            return {path for path in self._folder.iterdir() if path.suffix == suffix}
        return set()

    def _children(self) -> list[Path]:
        """Return the last file of each other process that has recorded since the session was made, in rank order."""
        from perfkit_core.trace.storage.store import process_of

        process = {path: process_of(path.name) for path in sorted(self._files(_STORED) - self._before)}
        return list({pid: path for path, pid in process.items() if pid not in (None, os.getpid())}.values())

    def end(self, alone: bool = True) -> Recorded:
        """End the recording, and return what was recorded. Raises CaptureError, also if it could not begin."""
        try:
            if self._refused is not None:
                raise self._refused
            return self._recording.finish(alone) if self._recording is not None else Recorded(0)
        finally:
            if not paths.is_remote(self.run_dir):  # a remote store has no empty folders
                with contextlib.suppress(OSError):  # rmdir fails if the folder is not empty
                    self._folder.rmdir()

    def nothing(self, script: Path) -> str:
        """Return the reason why no file was recorded."""
        if self._recording is not None:
            return f"{script}: nothing could be recorded"
        frameworks = ", ".join(self.frameworks) or "none, because no adapter is installed"
        return f"{script} imported no framework that perfkit can record (known frameworks: {frameworks})"


def _of_children(files: Sequence[Path]) -> Recorded:
    """Return what the processes of the script have recorded. ``files``: one of each process."""
    from perfkit_core.readers.load import load_one
    from perfkit_core.views.select import step_numbers
    from perfkit_core.views.steps.step_rows import step_rows

    traces = [load_one(path) for path in files]
    timed = next((trace.timed_steps for trace in traces if trace.step_clocks), None)
    steps_ns = [ns for trace in traces for ns in trace.ints("dur_ns")[step_rows(trace)].tolist()]
    most = max(len(step_numbers(trace)) for trace in traces)
    return Recorded(len(files), most, timed, step_ns=statistics.median(steps_ns) if steps_ns else None)


def _processes(count: int) -> str:
    return "1 process" if count == 1 else f"{count} processes"


def _ranks(files: Collection[Path]) -> str:
    """Return the ranks of the processes that wrote the files of cycles, as text. Not all processes have one."""
    from perfkit_core.trace.storage.store import rank_of

    ranks = sorted({rank for path in files if (rank := rank_of(path.name)) is not None})
    if not ranks:
        return ""
    dense = len(ranks) > 2 and ranks[-1] - ranks[0] == len(ranks) - 1
    numbers = f"{ranks[0]} to {ranks[-1]}" if dense else ", ".join(map(str, ranks))
    return f" (rank {numbers})" if len(ranks) == 1 else f" (ranks {numbers})"


def described(recorded: Recorded, of: str, run_dir: Path) -> Iterator[str]:
    """Yield what was recorded, and the time of a step without and with the profiler, if steps were timed.
    ``of``: the processes that were recorded, "" if it is the script's own."""
    what = counted(recorded.steps, "step") if recorded.steps else "the script, but no steps,"
    cut = f": recording ended early, because {render(recorded.cut)}" if recorded.cut is not None else ""
    yield f"recorded {what}{of} in {run_dir}{cut}"
    timed = recorded.timed
    if timed is not None:
        from perfkit_core.output.report.step_time import with_clock  # imports pandas

        yield from map(render, with_clock(timed, recorded.step_ns))
        if timed.between is not None:
            yield render(timed.between.text())


def prepare(program: Program, arguments: Sequence[str]) -> None:
    """Set ``sys.argv``, ``sys.path[0]`` and what ``main`` has changed as ``python SCRIPT ARGS`` would set them."""
    main.restore()
    sys.argv = [*arguments]
    if not program.module:  # the folder of a module's path is the current one
        _search(program.script.resolve().parent)


def _search(folder: Path) -> None:
    sys.path[: not sys.flags.safe_path] = [str(folder)]  # python -P adds no folder that is to be replaced


def run(program: Program) -> int:
    """Run the script as ``__main__`` and return its exit code. If the script raises, its traceback is printed.

    Raises only PerfkitError, if the recording cannot begin, and KeyboardInterrupt."""
    try:
        program.execute()
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return end.code or 0
        with contextlib.suppress(ValueError):  # the script has closed it
            print(end.code, file=sys.stderr)
        return 1
    except PerfkitError:
        raise
    except BaseException as error:
        error = error.with_traceback(of_script(error.__traceback__, str(program.script)))
        sys.excepthook(type(error), error, error.__traceback__)
        if isinstance(error, KeyboardInterrupt):
            raise
        return 1
    return 0


def of_script(traceback: TracebackType | None, file: str) -> TracebackType | None:
    """Return the traceback from the script's first frame, without the frames of perfkit and what they call."""
    first, inside = None, False
    while traceback is not None:
        module = str(traceback.tb_frame.f_globals.get("__name__"))
        inside = module.startswith("perfkit_") or (inside and module == "contextlib")
        if first is None and traceback.tb_frame.f_code.co_filename == file:
            first = last = traceback
        elif first is not None and not inside:
            last.tb_next = last = traceback
        traceback = traceback.tb_next
    if first is not None:
        last.tb_next = None
    return first


def _parsed(script: Path) -> ast.AST:
    try:
        with warnings.catch_warnings(action="ignore"):
            return ast.parse(script.read_bytes())
    except (SyntaxError, ValueError):
        return ast.Module([], [])  # not valid Python; running the script shows the syntax error


def imported_by(script: Path, frameworks: Collection[str]) -> list[str]:
    """Return the modules in ``frameworks`` that the script imports, in the order of its import statements."""
    imports = [node for node in ast.walk(_parsed(script)) if isinstance(node, (ast.Import, ast.ImportFrom))]
    modules: list[str] = []
    for node in sorted(imports, key=lambda node: node.lineno):
        if isinstance(node, ast.Import):
            modules += [alias.name for alias in node.names]
        elif node.module and not node.level:
            modules.append(node.module)
    names = dict.fromkeys(module.split(".")[0] for module in modules)
    return [name for name in names if name in frameworks]


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
