"""The magic ``%%perfkit``: record the code of a cell, and show the verdict."""

from __future__ import annotations

import ast
import contextlib
import importlib
import inspect
import io
import keyword
import operator
import sys
import time
import tokenize
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import TYPE_CHECKING, Any, Final

from IPython.core.error import UsageError as OneLineError
from IPython.core.getipython import get_ipython
from IPython.core.magic_arguments import argument, magic_arguments, parse_argstring
from IPython.display import display

from perfkit_core.base.system import failures
from perfkit_core.base.system.paths import printable
from perfkit_core.errors import PerfkitError, UsageError, spelled_like
from perfkit_core.plugins.manager import chosen_framework

if TYPE_CHECKING:
    from perfkit_core.cli.record import Session
    from perfkit_core.recording.step_calls import StepCalls

_OPTIONS: Final = ("shapes", "memory", "stacks", "flops")
_LISTED: Final = 20
"""Maximum number of functions of a module that a message lists."""


@magic_arguments()
@argument("-o", "--output", metavar="DIR", help="Write the recording to this run folder. [default: "
          "runs/cell-DATE-TIME]")  # fmt: skip
@argument("--steps", type=int, default=20, metavar="N", help="Stop recording after N steps. The cell runs on without "
          "recording. [default: 20]")  # fmt: skip
@argument("--step-on", metavar="FUNCTION|RANGE", help="A step ends when this function returns (train_step of the "
          "notebook, package.module:Class.method), or at the end of each range of this name that a cell labels. Write "
          "quotes around the name of a range that a library labels. "
          "[default: with each update of the first optimizer]")  # fmt: skip
@argument("--framework", metavar="NAME", help="Record this framework. [default: the one that the code uses]")
@argument("--trace", default="trace", metavar="NAME", help="Keep the trace in this variable. [default: trace]")
@argument("--shapes", action="store_true", help="Record the input shapes of operators.")
@argument("--memory", action="store_true", help="Record memory allocations and frees.")
@argument("--stacks", action="store_true", help="Record Python stacks.")
@argument("--flops", action="store_true", help="Record the FLOPs of operators.")
def perfkit(line: str, cell: str) -> None:
    """Record the code of this cell, show the verdict, and keep the trace in a variable.

    The code runs in the notebook's namespace, as without this magic. If it raises an exception, the recording is kept.
    """
    __tracebackhide__ = True
    shell = get_ipython()
    arguments = parse_argstring(perfkit, line)
    if arguments.steps < 1 or not arguments.trace.isidentifier() or keyword.iskeyword(arguments.trace):
        raise OneLineError("--steps must be 1 or more, and --trace must be the name of a variable")
    source = shell.input_transformer_manager.transform_cell(cell)
    number = len(shell.history_manager.input_hist_parsed) - 1
    filename = shell.compile.cache(source, number, raw_code=cell)
    tree = shell.transform_ast(shell.compile.ast_parse(source, filename=filename))
    try:
        cells = [cell, *shell.history_manager.input_hist_raw]
        step = _step_end(arguments.step_on, tree, shell.user_ns, cells) if arguments.step_on else None
        parts = _compiled(shell, tree, filename, source)
        session = _begun(arguments, tree, shell.user_ns, step)
    except PerfkitError as error:
        raise OneLineError(str(error)) from None
    run_dir = session.run_dir.absolute()  # the code may change the working directory
    try:
        with _wrapped(step, shell.user_ns):
            _execute(parts, shell.user_ns)
    finally:
        _show(session, run_dir, arguments.trace, shell.user_ns)


def _begun(arguments: Any, tree: ast.Module, namespace: Mapping[str, Any], step: StepCalls | str | None) -> Session:
    """Return a recording that has begun. Raises UsageError and CaptureError."""
    from perfkit_core.cli.record import RUNS, Session
    from perfkit_core.recording.step_calls import OPTION

    folder = Path(arguments.output or f"{RUNS}/cell-{time.strftime('%Y%m%d-%H%M%S')}")
    session = Session(folder, arguments.steps, {**{name: getattr(arguments, name) for name in _OPTIONS}, OPTION: step})
    session.check_folder()
    hint = f"choose one with --framework: {', '.join(session.frameworks)}"
    used = _used(tree, namespace)
    session.begin(chosen_framework(session.frameworks, arguments.framework, hint, used))
    return session


def _used(tree: ast.Module, namespace: Mapping[str, Any]) -> set[str]:
    """Return the top-level modules of the imports and variables of the code."""
    used = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    used |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    names = [node for node in ast.walk(tree) if isinstance(node, ast.Name)]
    assigned = {node.id for node in names if not isinstance(node.ctx, ast.Load)}  # their values are of earlier cells
    used |= set(_modules({node.id for node in names} - assigned, namespace, set()))
    return {name.partition(".")[0] for name in used}


def _modules(names: Collection[str], namespace: Mapping[str, Any], visited: set[str]) -> Iterator[str]:
    """Yield the modules of the variables with these names, of their classes, and of what their functions use."""
    for name in set(names).intersection(namespace) - visited:
        visited.add(name)
        value = namespace[name]
        if isinstance(value, ModuleType):
            yield value.__name__
        yield from (str(kind.__module__) for kind in (value if isinstance(value, type) else type(value)).__mro__)
        code = getattr(value, "__code__", None)
        if code is not None:
            yield str(value.__module__)
            yield from _modules(code.co_names, namespace, visited)


def _step_end(target: str, tree: ast.Module, namespace: Mapping[str, Any], cells: Sequence[str]) -> StepCalls | str:
    """Return the function that ``target`` names, or the name of a range. A function that the cell defines is decorated
    in ``tree``. A name in quotes is that of a range. Raises UsageError if the notebook has no such function and no cell
    contains the name of the range."""
    from perfkit_core.recording.step_calls import StepCalls, function_names, step_end

    if target[0] in "\"'":
        return target.strip(target[0])
    end = step_end(target, "__main__", "")
    if isinstance(end, StepCalls) and end.module:
        _check_imported(end)
        return end
    function = end if isinstance(end, StepCalls) else StepCalls("", target)
    name = function.qualname
    if function.decorate(tree) or callable(namespace.get(name)):
        return function
    if not (isinstance(end, StepCalls) or name.isidentifier()):
        return target  # such as ProfilerStep#3, which can only be a range
    if end == name and any(quote + name + quote in cell for cell in cells for quote in "\"'"):
        return target
    functions = [name for name, value in namespace.items() if isinstance(value, FunctionType) and name[0] != "_"]
    problem = f"--step-on {target}: the notebook has no function {name}, and no cell labels a range with this name"
    hint = spelled_like(name, [*functions, *function_names(tree)], "functions")
    raise UsageError(problem, f'{hint}; if a library labels the range, write "{name}"')


def _check_imported(step: StepCalls) -> None:
    """Import the module of the function. Raises UsageError if there is no such module or function."""
    try:
        module = importlib.import_module(step.module)
    except ImportError as error:
        raise UsageError(f"--step-on {step}: {step.module} cannot be imported ({error})", "check its name") from None
    try:
        operator.attrgetter(step.qualname)(module)
    except AttributeError:
        functions = [name for name, value in vars(module).items() if callable(value) and name[0] != "_"]
        problem = f"--step-on {step}: {step.module} has no function {step.qualname}"
        raise UsageError(problem, spelled_like(step.qualname, functions[:_LISTED], "functions")) from None


@contextlib.contextmanager
def _wrapped(step: StepCalls | str | None, namespace: dict[str, Any]) -> Iterator[None]:
    """Let the calls of a function end the steps, while the block runs."""
    if step is None or isinstance(step, str):
        yield
    elif step.module:
        step.wrap_imported(step.module)
        yield
    else:
        name = step.qualname
        if callable(namespace.get(name)):
            namespace[name] = step.wrap(namespace[name])
        namespace.update(step.names())
        try:
            yield
        finally:
            if name in namespace:
                namespace[name] = step.unwrapped(namespace[name])
            for added in step.names():
                namespace.pop(added, None)


def _execute(parts: Sequence[CodeType], namespace: dict[str, Any]) -> None:
    __tracebackhide__ = "__ipython_bottom__"  # IPython leaves out the frames up to this one
    for part in parts:
        exec(part, namespace)


def _compiled(shell: Any, tree: ast.Module, filename: str, source: str) -> list[CodeType]:
    """Return the code of a cell in parts. The last part displays the value of a last expression, unless it ends with a
    semicolon. Raises UsageError for top-level await, and SyntaxError."""
    last: list[ast.stmt] = [node for node in tree.body[-1:] if isinstance(node, ast.Expr) and not _quiet(source)]
    rest = ast.Module(tree.body[: len(tree.body) - len(last)], tree.type_ignores)
    try:
        parts = [shell.compile(rest, filename, "exec")]
        return [*parts, shell.compile(ast.Interactive(last), filename, "single")] if last else parts
    except SyntaxError:
        if _awaits(tree, filename, shell.compile.flags):
            problem = "a cell with await outside functions cannot be recorded"
            raise UsageError(problem, "record a cell without it") from None
        raise


def _awaits(tree: ast.Module, filename: str, flags: int) -> bool:
    """Return whether the code is valid and has await outside functions."""
    with contextlib.suppress(SyntaxError):
        code = compile(tree, filename, "exec", flags | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        return bool(code.co_flags & inspect.CO_COROUTINE)
    return False


def _quiet(source: str) -> bool:
    """Return whether the code ends with a semicolon, so that IPython does not display the last value."""
    tokens = list(tokenize.generate_tokens(io.StringIO(source).readline))
    ends = (tokenize.ENDMARKER, tokenize.NL, tokenize.NEWLINE, tokenize.COMMENT)
    return next((token.string for token in reversed(tokens) if token.type not in ends), "") == ";"


def _show(session: Session, run_dir: Path, name: str, namespace: dict[str, Any]) -> None:
    """End the recording, keep its trace as the variable ``name``, and show the verdict. Errors are printed in one line,
    because the code of the cell may have raised an exception, which is shown below."""
    try:
        from perfkit_core.api import Summary
        from perfkit_core.notebook.displays import verdict
        from perfkit_core.readers.load import load
        from perfkit_core.trace.assembly.steps import PARTIAL

        if not session.end().files:
            raise UsageError(f"{session.run_dir}: nothing was recorded")
        # a cell always ends inside a step, which is no problem
        trace = load(run_dir).with_meta(source=str(session.run_dir)).with_notes(PARTIAL)
        namespace[name] = trace
        display(Summary(verdict(trace)))
        print(f"Recorded in {session.run_dir}. The trace is in the variable {name}.")
    except PerfkitError as error:
        print(printable(f"perfkit: error: {error}"), file=sys.stderr)
    except Exception as error:  # an error of perfkit must not hide an exception of the cell, nor stop the notebook
        text = f"perfkit: error: the recording in {session.run_dir} cannot be shown ({failures.one_line(error)})"
        print(printable(text), file=sys.stderr)
