"""Calls of one Python function that end the steps of a recorded script (``perfkit record --step-on FUNCTION``).

The function is wrapped when its module is imported. A function of the script itself is wrapped when it is defined: the
script's syntax tree gets a decorator."""

from __future__ import annotations

import ast
import functools
import logging
import re
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from types import CodeType
from typing import Any, Final

from perfkit_core.base.system import failures
from perfkit_core.errors import UsageError, spelled_like
from perfkit_core.plugins.manager import get_plugins

OPTION: Final = "step_on"
"""Option of a recorder. Its value is a :class:`StepCalls`, or the name of a range that the script labels."""
LIMIT: Final = "most_events"
"""Option of a recorder: the limit of the events of a window, None for the default of the framework."""
CHILD: Final = "child"
"""Option of a recorder: this process is a child of the recorded script. It is recorded only if it makes steps."""
JOB: Final = "job"
"""Option of a recorder: a text that is equal for all processes of the recorded script."""
OPTIONS: Final = (OPTION, LIMIT, CHILD, JOB)
"""The options of a recorder that are no options of its profiler."""
_FEW_ENDS: Final = 3
_DECORATOR: Final = "__perfkit_step__"
_FUNCTION: Final = re.compile(r"([\w./\\-]+):([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)")
_Definition = ast.FunctionDef | ast.AsyncFunctionDef
_nothing: Final[Callable[[], object]] = object  # does nothing, as long as no profiler records


class StepCalls:
    """The function ``qualname`` of ``module``, or of the script itself if ``module`` is ``""``."""

    def __init__(self, module: str, qualname: str) -> None:
        self.module, self.qualname = module, qualname
        self._before = self._after = _nothing
        self._inside = False
        self._callers: Counter[tuple[CodeType, int]] = Counter()

    def __str__(self) -> str:
        return f"{self.module}:{self.qualname}".removeprefix(":")

    def watch(self, after: Callable[[], object], before: Callable[[], object] = _nothing) -> StepCalls:
        """Call ``before`` and ``after`` around each call of the function, except recursive ones, and return self."""
        self._before, self._after = before, after
        return self

    def end(self) -> None:
        self._before = self._after = _nothing

    def warn_of_callers(self) -> None:
        """Log a warning if the function was called in several places: also outside of the loop, perhaps."""
        if len(self._callers) > 1:
            lines = [f"{Path(code.co_filename).name}:{line}, {calls} times" for (code, line), calls in
                     self._callers.most_common(3)]  # fmt: skip
            text = f"{self} is called in {len(self._callers)} places ({'; '.join(lines)}): the steps may differ"
            failures.tell(text, logging.WARNING)

    def wrap(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            if self._inside:
                return function(*args, **kwargs)
            self._inside = True
            caller = sys._getframe(1)
            self._callers[caller.f_code, caller.f_lineno] += 1
            self._before()
            try:
                return function(*args, **kwargs)
            finally:
                self._inside = False
                self._after()

        call._perfkit = self  # type: ignore[attr-defined]
        return call

    def unwrapped(self, value: Any) -> Any:
        """Return the function that :meth:`wrap` wrapped, or any other value as it is."""
        return value.__wrapped__ if getattr(value, "_perfkit", None) is self else value

    def wrap_imported(self, name: str) -> None:
        """Wrap the function in its module, which has just been imported. Log an error if it has no such function."""
        *classes, last = self.qualname.split(".")
        try:
            owner = functools.reduce(getattr, classes, sys.modules[name])
            function = vars(owner)[last]
            kind = type(function) if isinstance(function, (staticmethod, classmethod)) else None
            wrapped = self.wrap(function.__func__ if kind else function)
            setattr(owner, last, kind(wrapped) if kind else wrapped)
        except (AttributeError, KeyError):
            failures.tell(f"no steps are recorded: {name} has no function {self.qualname}")

    def compiled(self, source: bytes, filename: str) -> Any:
        """Return the code of the script, in which the function is wrapped. Raises UsageError if there is no such
        function, and SyntaxError."""
        tree = ast.parse(source, filename)
        if not self.decorate(tree):
            functions = function_names(tree)
            hint = "it defines none: name one of a module, as in module:function, or a range that it labels"
            if functions:
                hint = spelled_like(self.qualname, functions, "functions")
            raise UsageError(f"{filename} has no function {self.qualname}", hint)
        return compile(tree, filename, "exec", dont_inherit=True)

    def decorate(self, tree: ast.Module) -> bool:
        """Wrap the function where the code defines it. Return whether the code defines it."""
        function = dict(_functions(tree, "")).get(self.qualname)
        if function is not None:
            decorator = ast.copy_location(ast.Name(_DECORATOR, ast.Load()), function)
            function.decorator_list.append(decorator)  # the innermost decorator
        return function is not None

    def names(self) -> dict[str, Any]:
        """Return the names that decorated code needs."""
        return {_DECORATOR: self.wrap}


def function_names(tree: ast.Module) -> list[str]:
    """Return the qualified names of the functions that the code defines."""
    return [name for name, _ in _functions(tree, "")]


def _functions(tree: ast.AST, prefix: str) -> list[tuple[str, _Definition]]:
    definitions: list[tuple[str, _Definition]] = []
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, _Definition):
            definitions.append((prefix + node.name, node))
        elif isinstance(node, ast.ClassDef):
            definitions += _functions(node, f"{prefix}{node.name}.")
        elif isinstance(node, ast.stmt):  # a function that is defined in a branch
            definitions += _functions(node, prefix)
    return definitions


def warn_without_steps(
    ends: int, step_on: StepCalls | str | None, repeated: Sequence[tuple[str, CodeType, int]] = ()
) -> None:
    """Log a warning if too few ends of steps were seen for a complete step: a step lasts from one end to the next. Also
    log one if there were only few, because the first iteration is not recorded. ``step_on`` is the value of
    :data:`OPTION`. ``repeated``: functions that ran several times, as of :meth:`.FrameSampler.repeated`. The hint names
    the first that the user wrote, else the first model of a library."""
    from perfkit_core.views.user_code import Owner, owner_of  # imports numpy, which the script has imported by now

    if isinstance(step_on, StepCalls):
        step_on.warn_of_callers()
    end = "update of an optimizer" if step_on is None else f"end of {step_on} (--step-on)"
    if ends >= 2:
        if ends <= _FEW_ENDS:
            text = f"the first of only {ends} iterations is not recorded: a step lasts from one {end} to the next"
            failures.tell(text, logging.WARNING)
        return
    cause = f"only one {end} was seen, and the first iteration is not recorded" if ends else f"no {end} was seen"
    hint = "" if step_on else ": --step-on names a function or a range that ends a step"
    users = [item for item in repeated if owner_of(item[1].co_filename, None) is Owner.USER]
    frameworks = get_plugins().recordable()
    models = [item for item in repeated if item[1].co_name == "forward" and item[0].split(".")[0] not in frameworks]
    for module, code, calls in (users or models)[:1] if step_on is None else ():
        source = Path(code.co_filename).name if module == "__main__" else module
        hint = f". --step-on {source}:{code.co_qualname} may end the steps: it ran at least {calls} times"
    failures.tell(f"no complete step was found, because {cause}{hint}", logging.WARNING)


def step_end(target: str, main: str, file: str) -> StepCalls | str:
    """Return the function that ``target`` names, as ``module:function`` or ``file.py:function``, else the name of a
    range. ``main`` and ``file``: module name (or ``""``) and file name of the script. Raises UsageError for a file that
    is not the script."""
    match = _FUNCTION.fullmatch(target)
    if match is None:
        return target
    source, qualname = match.groups()
    if source in ("__main__", main, file) or (source.endswith(".py") and file.endswith(f"/{source}")):
        return StepCalls("", qualname)
    if source.endswith(".py"):
        raise UsageError(f"--step-on {target}: {source} is not the script", "name its module, as in module:function")
    return StepCalls(source, qualname)
