"""Annotated static programs: their operators, and when an executor ran them while a profiler was active.

Only programs of Paddle's new IR (PIR) can be annotated. Old programs record the shapes of their operators themselves.
"""

from __future__ import annotations

import functools
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np
import paddle
from paddle.profiler import utils
from paddle.static import Executor

from perfkit_core.base.system.failures import logger, raised_by_signal
from perfkit_core.errors import UsageError
from perfkit_core.plugins.flops.registry import read_formulas
from perfkit_paddle.operator_names import NAMESPACE
from perfkit_paddle.program_operators import Run
from perfkit_paddle.program_shapes import Places, Program, ProgramOperator, Value

_IN_ORDER: Final = ("FLAGS_enable_pir_in_executor_trace_run", "FLAGS_new_executor_serial_run")
"""Flags with which the executor runs operators in the order of the program."""
_SHAPED: Final = ("name", "perm", "axes", "transpose_x", "transpose_y")
"""Attributes that determine shapes."""
_MOST_RUNS: Final = 1 << 16
"""Number of runs that are kept if no handler takes them."""


def is_program(model: object) -> bool:
    """Return whether ``model`` is a static program. Raises UsageError if it is one of the old IR."""
    if isinstance(model, paddle.pir.Program):
        return True
    if isinstance(model, paddle.base.framework.Program):
        text = "programs of Paddle's old IR need no annotation"
        raise UsageError(text, "record them with record_shapes=True, or build them with PIR (Paddle 3.0 and later)")
    return False


class ProgramAnnotation:
    """The annotation of a program. It ends with :meth:`remove`, with its ``with`` block, or with the program."""

    def __init__(self, program: Any) -> None:
        self._program = weakref.ref(program, lambda _: self.remove())
        self._read, self._count = read(program), program.num_ops()
        self._has_run = False

    @property
    def model(self) -> Any:
        """The annotated program, or None if it was deleted."""
        return self._program()

    def operators(self) -> Program:
        """Return the operators of the program. If operators were added before its first run, they are read again."""
        program = self.model
        if not self._has_run and program.num_ops() != self._count:  # counting takes 0.1 µs per operator
            self._read = read(program)
        self._has_run = True
        return self._read

    def remove(self) -> None:
        """End the annotation. A second call does nothing."""
        RUNS.forget(self)

    def __enter__(self) -> ProgramAnnotation:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()


class Runs:
    """The annotated programs and their runs. While there are any, ``Executor.run`` is wrapped."""

    def __init__(self) -> None:
        self._annotations: list[ProgramAnnotation] = []
        self._runs: deque[Run] = deque(maxlen=_MOST_RUNS)
        self._lock = threading.RLock()  # reentrant: a thread with the lock may delete a program, which calls forget()
        self._original: Callable[..., Any] | None = None
        self._wrapped: Callable[..., Any] | None = None

    def annotate(self, program: Any) -> ProgramAnnotation:
        with self._lock:
            annotation = self._of(program)
            if annotation is None:
                annotation = ProgramAnnotation(program)
                self._annotations.append(annotation)
            if self._original is None:
                self._original = Executor.run
                self._wrapped = Executor.run = self._recorded(Executor.run)
            return annotation

    def forget(self, annotation: ProgramAnnotation) -> None:
        with self._lock:
            if annotation in self._annotations:
                self._annotations.remove(annotation)
            if not self._annotations and self._original is not None and Executor.run is self._wrapped:
                Executor.run = self._original
                self._original = None

    def drain(self) -> tuple[Run, ...]:
        """Return the runs since the last call of this method."""
        with self._lock:
            runs = tuple(self._runs)
            self._runs.clear()
        return runs

    def _of(self, program: Any) -> ProgramAnnotation | None:
        return next((annotation for annotation in self._annotations if annotation.model is program), None)

    def _recorded(self, run: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(run)
        def recorded(executor: Any, program: Any = None, feed: Any = None, *args: Any, **kwargs: Any) -> Any:
            operators = self._operators(program)
            start = time.time_ns()  # the clock of Paddle's profiler
            try:
                return run(executor, program, feed, *args, **kwargs)
            finally:
                if operators is not None:
                    self._log(operators, feed, start, time.time_ns())

        return recorded

    def _operators(self, program: Any) -> Program | None:
        """Return the operators of a program that is annotated, while a profiler is active. Never raises."""
        try:
            annotation = self._of(paddle.static.default_main_program() if program is None else program)
            operators = None if annotation is None else annotation.operators()
            return operators if utils.in_profiler_mode() else None
        except Exception as error:
            if raised_by_signal(error):
                raise
            logger.debug("perfkit: the operators of a program could not be read", exc_info=True)
            return None

    def _log(self, operators: Program, feed: Any, start: int, end: int) -> None:
        try:
            feeds = feed[0] if isinstance(feed, (list, tuple)) else feed or {}
            shapes = tuple((name, _shape(tensor)) for name, tensor in sorted(feeds.items()))
            flags = paddle.get_flags(list(_IN_ORDER))
            self._runs.append(Run(start, end, operators, shapes, any(flags.values())))
        except Exception as error:
            if raised_by_signal(error):
                raise
            logger.debug("perfkit: a run of a program could not be described", exc_info=True)


RUNS: Final = Runs()


def _shape(tensor: Any) -> tuple[int, ...]:
    shape = getattr(tensor, "shape", None)
    return tuple(map(int, shape() if callable(shape) else np.shape(tensor) if shape is None else shape))


def read(program: Any) -> Program:
    """Return the operators of a PIR program. Operators in the branches of a condition or loop are left out."""
    return _Reader().program(program.global_block().ops)


class _Reader:
    def __init__(self) -> None:
        self._values: list[Value] = []
        self._places: dict[str, Places] = {}  # id of a value → index of the tensor, or of each tensor in the list

    def program(self, operators: list[Any]) -> Program:
        formulas = read_formulas("perfkit_paddle")
        lists = {  # id of a list → the operator that takes the tensors out of it
            operator.operand_source(0).id: operator for operator in operators if operator.name() == "builtin.split"
        }
        program_operators = []
        for operator in operators:
            name = operator.name()
            operands = operator.operands_source()
            inputs = tuple(self._places.get(value.id) if value.initialized() else None for value in operands)
            if name == "builtin.split":
                continue
            if name == "builtin.combine":
                items = tuple(index for index in inputs if isinstance(index, int))
                self._places[operator.result(0).id] = items
                continue
            native = operator.attrs()
            constant = _constant(name, native)
            results = tuple(self._add_result(value, lists, constant) for value in operator.results())
            if not name.startswith(NAMESPACE):
                continue
            name = name.rstrip("_")
            # The order of attributes can only be asked of operators that Paddle generates from definitions.
            order = operator.get_attr_names() if name in formulas else ()
            attributes = {key: native.get(key) for key in (*order, *(key for key in _SHAPED if key in native))}
            program_operators.append(ProgramOperator(name.removeprefix(NAMESPACE), inputs, results, attributes))
        return Program(tuple(program_operators), tuple(self._values))

    def _add_result(self, value: Any, lists: Mapping[str, Any], constant: Any) -> Places:
        """Return the places of a result: None if it is not computed, several if it is a list."""
        if not value.initialized():
            return None
        if value.is_dense_tensor_type() or value.is_selected_row_type():
            self._values.append(Value(tuple(value.shape), str(value.dtype).removeprefix("paddle."), constant))
            self._places[value.id] = len(self._values) - 1
        elif value.id in lists:
            items = [self._add_result(item, lists, None) for item in lists[value.id].results()]
            self._places[value.id] = tuple(item for item in items if isinstance(item, int))
        return self._places.get(value.id)


def _constant(name: str, attributes: Mapping[str, Any]) -> Any:
    """Return the value of an operator that creates numbers, as ``axis=[0]``."""
    value = attributes.get("value")
    if name == "pd_op.full_int_array" and isinstance(value, list):
        return tuple(value)
    shape = attributes.get("shape")
    return value if name == "pd_op.full" and shape in ([], [1]) and isinstance(value, (int, float)) else None
