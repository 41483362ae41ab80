"""The magic ``%%perfkit``: record the code of a cell, and show the verdict."""

from __future__ import annotations

import ast
import contextlib
import importlib
import keyword
import sys
import time
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

from IPython.core.error import UsageError as OneLineError
from IPython.core.getipython import get_ipython
from IPython.core.magic_arguments import argument, magic_arguments, parse_argstring
from IPython.display import display

from perfkit_core.errors import PerfkitError, UsageError
from perfkit_core.recording.chosen_framework import chosen_framework

if TYPE_CHECKING:
    from perfkit_core.cli.record import Session
    from perfkit_core.recording.step_calls import StepCalls

_OPTIONS: Final = ("shapes", "memory", "stacks", "flops")


@magic_arguments()
@argument("-o", "--output", metavar="DIR", help="Write the recording to this run folder. [default: "
          "runs/cell-DATE-TIME]")  # fmt: skip
@argument("--steps", type=int, default=20, metavar="N", help="Stop recording after N steps. The cell runs on without "
          "recording. [default: 20]")  # fmt: skip
@argument("--step-on", metavar="FUNCTION|RANGE", help="A step ends when this function returns (train_step of the "
          "notebook, package.module:Class.method), or at the end of each range of this name that the code labels. "
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
    given = parse_argstring(perfkit, line)
    if given.steps < 1 or not given.trace.isidentifier() or keyword.iskeyword(given.trace):
        raise OneLineError("--steps must be 1 or more, and --trace must be the name of a variable")
    source = shell.input_transformer_manager.transform_cell(cell)
    number = len(shell.history_manager.input_hist_parsed) - 1
    filename = shell.compile.cache(source, number, raw_code=cell)
    tree = shell.transform_ast(shell.compile.ast_parse(source, filename=filename))
    try:
        session, step = _begun(given, tree, shell.user_ns)
    except PerfkitError as error:
        raise OneLineError(str(error)) from None
    place = session.run_dir.absolute()  # the code may change the working directory
    try:
        with _wrapped(step, shell.user_ns):
            _execute(shell, tree, filename)
    finally:
        _show(session, place, given.trace, shell.user_ns)


def _begun(given: Any, tree: ast.Module, namespace: Mapping[str, Any]) -> tuple[Session, StepCalls | str | None]:
    """Return a recording that has begun, and what ends its steps. Raises UsageError and CaptureError."""
    from perfkit_core.cli.record import RUNS, Session
    from perfkit_core.recording.step_calls import OPTION

    step = given.step_on and _step_end(given.step_on, namespace)
    folder = Path(given.output or f"{RUNS}/cell-{time.strftime('%Y%m%d-%H%M%S')}")
    session = Session(folder, given.steps, {**{name: getattr(given, name) for name in _OPTIONS}, OPTION: step})
    session.check_folder()
    hint = f"choose one with --framework: {', '.join(session.recorders)}"
    used = _used(tree, namespace)
    session.begin(chosen_framework(session.recorders, given.framework, hint, used))
    return session, step


def _used(tree: ast.Module, namespace: Mapping[str, Any]) -> set[str]:
    """Return the top-level modules of the imports and variables of the code."""
    used = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    used |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    names = [node for node in ast.walk(tree) if isinstance(node, ast.Name)]
    assigned = {node.id for node in names if not isinstance(node.ctx, ast.Load)}  # their values are of earlier cells
    used |= set(_modules({node.id for node in names} - assigned, namespace, set()))
    return {name.partition(".")[0] for name in used}


def _modules(names: Collection[str], namespace: Mapping[str, Any], seen: set[str]) -> Iterator[str]:
    """Yield the modules of the variables with these names, of their classes, and of what their functions use."""
    for name in set(names).intersection(namespace) - seen:
        seen.add(name)
        value = namespace[name]
        if isinstance(value, ModuleType):
            yield value.__name__
        yield from (str(kind.__module__) for kind in (value if isinstance(value, type) else type(value)).__mro__)
        code = getattr(value, "__code__", None)
        if code is not None:
            yield str(value.__module__)
            yield from _modules(code.co_names, namespace, seen)


def _step_end(target: str, namespace: Mapping[str, Any]) -> StepCalls | str:
    from perfkit_core.recording.step_calls import StepCalls, step_end

    if callable(namespace.get(target)):
        return StepCalls("", target)
    return step_end(target, "__main__", "")


@contextlib.contextmanager
def _wrapped(step: StepCalls | str | None, namespace: dict[str, Any]) -> Iterator[None]:
    """Let the calls of a function end the steps, while the block runs."""
    if step is None or isinstance(step, str):
        yield
    elif step.module:
        importlib.import_module(step.module)
        step.wrap_imported(step.module)
        yield
    else:
        function = namespace[step.qualname]
        wrapped = namespace[step.qualname] = step.wrap(function)
        try:
            yield
        finally:
            if namespace.get(step.qualname) is wrapped:
                namespace[step.qualname] = function


def _execute(shell: Any, tree: ast.Module, filename: str) -> None:
    """Run the code of a cell. The value of a last expression is displayed."""
    __tracebackhide__ = "__ipython_bottom__"  # IPython leaves out the frames up to this one
    last = [tree.body.pop()] if tree.body and isinstance(tree.body[-1], ast.Expr) else []
    exec(shell.compile(tree, filename, "exec"), shell.user_ns)
    if last:
        exec(shell.compile(ast.Interactive(last), filename, "single"), shell.user_ns)


def _show(session: Session, place: Path, name: str, namespace: dict[str, Any]) -> None:
    """End the recording, keep its trace as the variable ``name``, and show the verdict. Errors are printed in one line,
    because the code of the cell may have raised an exception, which is shown below."""
    from perfkit_core.api import Summary
    from perfkit_core.notebook.displays import verdict
    from perfkit_core.readers.load import load

    try:
        if not session.end():
            raise UsageError(f"{session.run_dir}: nothing was recorded")
        trace = namespace[name] = load(place).with_meta(source=str(session.run_dir))
        display(Summary(verdict(trace)))
        print(f"Recorded in {session.run_dir}. The trace is in the variable {name}.")
    except PerfkitError as error:
        print(f"perfkit: error: {error}", file=sys.stderr)
