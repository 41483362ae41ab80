"""The record of a framework: everything that an adapter provides for it, and the objects in it, such as the recorder
and the benchmarks of ``perfkit calibrate``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

if TYPE_CHECKING:
    from perfkit_core.base.language.messages import Text
    from perfkit_core.base.system.device_events import DeviceClock
    from perfkit_core.plugins.contracts import FrameworkChecks, Remedy
    from perfkit_core.plugins.flops.registry import OperatorFormula
    from perfkit_core.trace.model.compiled_graph import CompiledGraph
    from perfkit_core.trace.model.timed_steps import TimedSteps
    from perfkit_core.trace.model.trace import Trace


def absent() -> None:
    """Return None, as a part does that an adapter does not provide."""


@dataclass(frozen=True, slots=True)
class Framework:
    """Everything that an adapter provides for a framework. All parts but the name are optional.

    Each part is a function without arguments that returns the part, or None. perfkit calls it when it first needs the
    part. So the function imports what the part needs, and making the record imports nothing. A function that raises is
    listed as an error of its plugin; the framework then lacks this part only.

    Several plugins may add to one framework, for example remedies for ``torch``. perfkit merges their records, those of
    its own adapters first, then by the name of the plugin. The remedies of all records are listed. Functions that map a
    name (``operator_names``, ``operator_formulas``, ``range_names``) are asked in this order, until one knows the name.
    Of any other part, the first is used.

    - ``name``: the name of the framework's module, which is also ``meta.framework`` of its traces, such as ``torch``.
    - ``recorder``: live capture, for ``perfkit record``, ``perfkit demo`` and ``perfkit.profile``.
    - ``step_timer``: a function that starts and returns a step timer, for ``perfkit verify``. perfkit calls it when a
      script first imports the module.
    - ``remedies``: code that solves the problems that rules detect. An adapter may keep its remedies in
      ``remedies.toml`` (:func:`perfkit_core.advice.remedies.read_remedies`).
    - ``calibrator``: measures the cost of tiny operators, launches and copies on a machine, for ``perfkit calibrate``.
    - ``operator_names``: a function that maps an operator name of this framework to the canonical name, or to None if
      the name is unknown. perfkit stores the canonical names in column ``op_name`` of every trace.
      ``perfkit_core/base/operators/families.toml`` lists them. The name of a gradient ends with ``_grad``. An operator
      that only runs other operators is named ``control_flow``, ``compiled_region`` or ``custom_function``. An adapter
      may keep its names in ``operator_names.toml`` (:func:`perfkit_core.base.operators.names.native_names`).
    - ``operator_formulas``: a function that maps an operator name of this framework to the formula of its FLOPs and
      bytes, with the roles of its recorded arguments, or to None (:mod:`perfkit_core.plugins.flops.registry`).
      ``WRAPPER`` stands for the formula of an operator that only calls others. An adapter may keep its formulas in
      ``operator_formulas.toml`` (:func:`perfkit_core.plugins.flops.registry.read_formulas`).
    - ``range_names``: a function that maps the text of an NVTX range to a :class:`RangeMeaning`, or to None if the
      framework did not write this text. Readers of files from system profilers, such as Nsight Systems, use it. Ranges
      that no framework recognises become annotations. A file's framework is the one that recognises the most ranges.
    - ``native_tables``: how the framework's own profiler counts operators and labels, for ``--native``.
    - ``compiled_code``: reads what the framework's compiler writes about its kernels: the operators, layers and lines
      of code that a kernel was made of. For the view ``compiled`` and for ``--compile-info``.
    - ``checks``: checks of the installation, for ``perfkit doctor``: its packages, its devices, and a recording."""

    name: str
    recorder: Callable[[], Recorder | None] = absent
    step_timer: Callable[[], Callable[[], StepTimer] | None] = absent
    remedies: Callable[[], Sequence[Remedy]] = tuple
    calibrator: Callable[[], Calibrator | None] = absent
    operator_names: Callable[[], Callable[[str], str | None] | None] = absent
    operator_formulas: Callable[[], Callable[[str], OperatorFormula | None] | None] = absent
    range_names: Callable[[], Callable[[str], RangeMeaning | None] | None] = absent
    native_tables: Callable[[], NativeTables | None] = absent
    compiled_code: Callable[[], CompiledCode | None] = absent
    checks: Callable[[], FrameworkChecks | None] = absent


@dataclass(frozen=True, slots=True)
class CompiledCode:
    """Readers of what a framework's compiler writes about the kernels that it generates.

    - ``operators(kernel)`` returns the native names of the operators that a generated kernel computes, as far as its
      name shows them. It returns () for other kernels.
    - ``read(path, rank)`` returns the compiled graphs that a file or a folder describes, or (). It raises SourceError.
      Files of other ranks are left out if the folder has files of this rank. A rank of None has all files.
    - ``beside(path, rank)`` returns the files and folders next to a trace file, or in a run folder, that ``read`` can
      read."""

    operators: Callable[[str], Sequence[str]]
    read: Callable[[Path, int | None], Sequence[CompiledGraph]] | None = None
    beside: Callable[[Path, int | None], Sequence[Path]] | None = None


@dataclass(frozen=True, slots=True)
class Recorded:
    """What was recorded of a script.

    - ``files``: number of files that were written
    - ``steps``: number of complete steps in them
    - ``timed``: the steps that were timed, None if there is no clock
    - ``step_ns``: the median of the recorded steps, as reports say it; None without steps
    - ``cut``: why the recording ended before the last chosen step, if it did"""

    files: int
    steps: int = 0
    timed: TimedSteps | None = None
    cut: Text | None = None
    step_ns: float | None = None


class Recording(Protocol):
    """A running capture of an unmodified script. ``finish`` ends the capture and returns what was recorded. It raises
    CaptureError if the script ended the capture early, for example by starting another profiler. ``alone``: whether no
    other process of the script was recorded. If there are others, a process without steps is not kept."""

    def finish(self, alone: bool = True) -> Recorded: ...


@dataclass(frozen=True, slots=True)
class Demo:
    """A training with planted faults, for ``perfkit demo``.

    - ``script``: ``python SCRIPT DIR`` trains, and records some steps into the run folder DIR. perfkit's schedule times
      the other steps.
    - ``fix``: texts of the script → what replaces them to remove the faults.
    - ``rules``: ids of the rules whose advice the fix follows."""

    script: Path
    fix: Mapping[str, str]
    rules: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Recorder:
    """Live capture for ``perfkit record`` and ``perfkit demo``.

    - ``start(run_dir, steps, options)`` begins to record this process. The recording ends after ``steps`` steps, or
      with the process if ``steps`` is None. ``options`` are the flags ``shapes``, ``memory``, ``stacks`` and ``flops``,
      and ``step_on``, which says what ends a step (:mod:`perfkit_core.recording.step_calls`; by default, an update of
      the first optimizer), ``most_events``, the limit of the recording's events, and ``child``, which says that the
      process was started by the recorded script: it is recorded only if it makes steps. A recorder may leave the last
      two out. An option of the profiler that the framework does not support raises UsageError.
    - ``demo`` is the training of ``perfkit demo``, or None.
    - ``section(options)`` begins to record this process in memory, and returns a function that ends the recording and
      returns its Trace. The recorded events are those of step 1. ``options`` are the flags above. It raises
      CaptureError if another profiler runs. ``section`` is None if the framework has no such recording.
    - ``timer()`` returns a StepTimer that does not watch the optimizers: its user calls ``updated``. It may be None.
    - ``instead``: flag that the framework's profiler does not support → sentence that says so, and what records it.
    - ``loop(run_dir, steps, **options)`` returns a recording of the steps ``steps`` (first and last) of a loop, for
      :func:`perfkit.profile` (:class:`perfkit_core.recording.step_recording.CallbackRecording`), or is None."""

    start: Callable[[Path, int | None, Mapping[str, Any]], Recording]
    demo: Demo | None = None
    instead: Mapping[str, Text] = field(default_factory=dict)
    section: Callable[[Mapping[str, bool]], Callable[[], Trace]] | None = None
    timer: Callable[[], StepTimer] | None = None
    loop: Callable[..., Any] | None = None


@dataclass(frozen=True, slots=True)
class NativeTables:
    """How a framework's own profiler makes its tables of operators and labels, for ``request.native``.

    - ``operators``: categories of the events in its table of operators; empty if it contains all operators.
    - ``totals_only``: its tables contain no self times and no memory; perfkit's numbers fill these columns. Each event
      is a call. Shares are parts of the sum of their column. If False, a self time is the duration less the sum of the
      children, and a memory event counts for all host events during which it occurs."""

    operators: tuple[str, ...] = ()
    totals_only: bool = False


class StepTimer(Protocol):
    """Measures step times in a process that runs no profiler. A step lasts from one update of the first optimizer to
    its next. ``updated`` is called after each update. ``times`` returns the durations in ns and the clock's name."""

    def updated(self) -> None: ...

    def times(self) -> tuple[Sequence[int], str]: ...


class RangeMeaning(NamedTuple):
    """The event that a framework marked with an NVTX range. ``kind`` and ``phase`` are those of the event table."""

    name: str
    kind: str
    phase: str | None = None  # phase of the event and of all events inside it
    step: int | None = None  # number of the step
    sequence: int | None = None  # number that a forward operator shares with its backward node
    shapes: str | None = None  # input shapes, as JSON text


Direction = Literal["htod", "dtoh"]
Call = Callable[[], object]


class DeviceBench(Protocol):
    """The calls whose time a calibration measures on a device, and a clock that times work on this device."""

    name: str
    """The device model, as the framework names it."""
    clock: DeviceClock

    def launch(self) -> object:
        """Launch the smallest possible kernel, and do not wait for it."""

    def occupy(self) -> object:
        """Launch work of about ten milliseconds, and do not wait for it."""

    def synchronize(self) -> object:
        """Wait until the device has finished all launched work."""

    def copy(self, direction: Direction, size: int, pinned: bool) -> Call | None:
        """Return a call that copies ``size`` bytes and waits for the copy; None if the framework cannot pin memory."""


@dataclass(frozen=True, slots=True)
class RecordingBench:
    """Small operators with gradients, and the framework's profiler, which records them.

    - ``options``: options of the profiler, such as ``record_shapes``. "" stands for no option and comes first.
    - ``profiled(option, run)`` calls ``run`` while the profiler records, and returns the number of recorded operators.
      A Python frame and a memory event count as half an operator."""

    work: Call
    options: tuple[str, ...]
    profiled: Callable[[str, Call], float]


@dataclass(frozen=True, slots=True)
class Bench:
    """The calls whose time a calibration measures."""

    # The small operators to time on the host. The key is (canonical name, number of elements).
    operators: Mapping[tuple[str, int], Call] = field(default_factory=dict)
    device: DeviceBench | None = None
    threads: int | None = None  # The maximum number of threads that an operator uses.
    recording: RecordingBench | None = None


@dataclass(frozen=True, slots=True)
class Calibrator:
    """Measures what tiny operators, launches and copies cost on a machine. Predictions use these costs.

    - ``version()`` returns the version of the framework, or None if not installed, without importing it.
    - ``bench()`` returns what to measure (:func:`perfkit_core.measure.calibration.calibrate.measured`), or raises
      CaptureError.
    - ``recording_ns``: time that the framework's profiler takes to record an operator, in ns: the least, a likely and
      the longest. The key is an option of the profiler, such as ``record_shapes``, that adds to the time; "" is the
      time without options. It is used on machines that are not calibrated."""

    version: Callable[[], str | None]
    bench: Callable[[], Bench]
    recording_ns: Mapping[str, tuple[float, float, float]] = field(default_factory=dict, hash=False)
