"""The objects that plugins and built-ins return from their hooks. Those of views are in :mod:`.view`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final, Generic, NamedTuple, Protocol, TypeVar

from perfkit_core.base.language.messages import Text
from perfkit_core.plugins.view import PAGE as PAGE
from perfkit_core.plugins.view import Grouped as Grouped
from perfkit_core.plugins.view import Listed as Listed
from perfkit_core.plugins.view import Merged as Merged
from perfkit_core.plugins.view import Reduced as Reduced
from perfkit_core.plugins.view import Table as Table
from perfkit_core.plugins.view import TableFunction as TableFunction
from perfkit_core.plugins.view import View as View
from perfkit_core.plugins.view import ViewRequest as ViewRequest
from perfkit_core.plugins.view import split_grouping as split_grouping

if TYPE_CHECKING:
    from perfkit_core.plugins.flops.registry import OperatorFormula
    from perfkit_core.trace.model.compiled_graph import CompiledGraph
    from perfkit_core.trace.model.meta import Finding, TraceMeta
    from perfkit_core.trace.model.report_data import Report
    from perfkit_core.trace.model.trace import Trace

RuleInput = TypeVar("RuleInput")
Candidate = TypeVar("Candidate")


class EventWriter(Protocol):
    """The file to which a reader streams events
    (:class:`perfkit_core.trace.storage.recorded_events.RecordedWriter`)."""

    rows: int

    def write(self, batch: Any) -> None: ...

    def close(
        self, meta: TraceMeta, quality: tuple[Finding, ...] = (), rank: int | None = None, base_ns: int = 0
    ) -> None: ...


@dataclass(frozen=True, slots=True)
class Source:
    """A reader of one format.

    - ``sniff(path, head)`` returns how well the reader suits the file: 0 (cannot read it), 1 (known container, such as
      any folder), 2 (known content), or 3 (written by the package of the reader). ``head`` is the first 4 KiB,
      decompressed. The reader with the highest number is used.
    - ``read(path, partial)`` returns the Trace or raises SourceError. If ``partial`` is set, a damaged file raises no
      error: its readable part is returned with a finding.
    - ``peek(path)`` returns the rank of a file, or None if unknown, without reading the events. Ranks are assigned
      before files are read. Without ``peek``, ranks come from the file names or the order of the files.
    - ``stream(path, partial, writer)`` passes the events to the writer in parts and closes it. It is None if the format
      needs all events in memory.
    - ``complete(recorded, meta)`` is called when a streamed file is loaded. It adds data that depends on all events,
      and returns the events and findings. ``complete`` is None if the format has no such data."""

    name: str
    description: str
    sniff: Callable[[Path, bytes], int]
    read: Callable[[Path, bool], Trace]
    peek: Callable[[Path], int | None] | None = None
    stream: Callable[[Path, bool, EventWriter], None] | None = None
    complete: Callable[[Any, TraceMeta], tuple[Any, tuple[Finding, ...]]] | None = None  # Any: draft.RecordedEvents


@dataclass(frozen=True, slots=True)
class CompiledCode:
    """Readers of what a framework's compiler writes about the kernels that it generates.

    - ``operators(kernel)`` returns the native names of the operators that a generated kernel computes, as far as its
      name shows them. It returns () for other kernels.
    - ``read(path, rank)`` returns the compiled graphs that a file or a folder describes, or (). It raises SourceError.
      Files of other ranks are left out if the folder has files of this rank. A rank of None has all files.
    - ``beside(path, rank)`` returns the files and folders next to a trace file, or in a run folder, that ``read`` can
      read."""

    framework: str
    operators: Callable[[str], Sequence[str]]
    read: Callable[[Path, int | None], Sequence[CompiledGraph]] | None = None
    beside: Callable[[Path, int | None], Sequence[Path]] | None = None


class Recording(Protocol):
    """A running capture of an unmodified script. ``finish`` ends the capture and returns the number of written files.
    It raises CaptureError if the script ended the capture early, for example by starting another profiler."""

    def finish(self) -> int: ...


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

    - ``framework``: name of the module that a script must import to be recorded by this recorder.
    - ``start(run_dir, steps, options)`` begins to record this process. The recording ends after ``steps`` steps, or
      with the process if ``steps`` is None. ``options`` are the flags ``shapes``, ``memory``, ``stacks`` and ``flops``,
      and ``step_on``, which says what ends a step (:mod:`perfkit_core.recording.step_calls`; by default, an update of
      the first optimizer). An option that the framework does not support raises UsageError.
    - ``demo`` is the training of ``perfkit demo``, or None.
    - ``section(options)`` begins to record this process in memory, and returns a function that ends the recording and
      returns its Trace. The recorded events are those of step 1. ``options`` are the flags above. It raises
      CaptureError if another profiler runs. ``section`` is None if the framework has no such recording.
    - ``timer()`` returns a StepTimer that does not watch the optimizers: its user calls ``updated``. It may be None.
    - ``instead``: flag that the framework's profiler does not support → sentence that says so, and what records it.
    - ``loop(run_dir, steps, **options)`` returns a recording of the steps ``steps`` (first and last) of a loop, for
      :func:`perfkit.profile` (:class:`perfkit_core.recording.step_recording.CallbackRecording`), or is None."""

    framework: str
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


@dataclass(frozen=True, slots=True)
class Renderer:
    """A renderer of a Report in one text format."""

    name: str
    render: Callable[[Report], str]


@dataclass(frozen=True, slots=True)
class ExportOptions:
    """Options of an export. ``weight`` is one of the exporter's ``weights``, or None for its default."""

    weight: str | None = None


@dataclass(frozen=True, slots=True)
class Exporter:
    """A writer of traces in the format of another tool.

    - ``write(trace, file, options)`` writes to a binary file without seeking. It returns a sentence about missing data,
      or "". The file appears under its name only when it is complete.
    - ``suffixes``: file name extensions. The first is the default. perfkit compresses files whose name ends in ``.gz``,
      except if the extension of the format already ends in ``.gz``.
    - ``weights``: accepted values of ``options.weight``."""

    name: str
    description: str
    suffixes: tuple[str, ...]
    write: Callable[[Trace, BinaryIO, ExportOptions], str]
    weights: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Rule(Generic[RuleInput, Candidate]):
    """A pattern that costs time, and how to detect it.

    - ``id``: name of the rule in commands. ``number``: its number in docs/rules.
    - ``version``: number that increases when the predictions change.
    - ``find(facts)`` returns the detected problems as Candidates, or an empty sequence if the rule does not apply. If
      data is missing, it raises :class:`perfkit_core.advice.rule_input.NotEvaluableError`, which names the data.
    - ``what_if(facts, value)`` returns the Candidate for ``--what-if ID=VALUE``, even if the rule does not apply.
      ``what_if`` is None if the rule does not support ``--what-if``."""

    id: str
    number: int
    version: int
    title: str
    find: Callable[[RuleInput], Sequence[Candidate]]
    what_if: Callable[[RuleInput, float], Candidate] | None = None


VERIFY: Final = "--base 'python train.py' --change 'python train_changed.py'"
"""Default arguments of ``perfkit verify`` for a remedy."""


@dataclass(frozen=True, slots=True)
class Remedy:
    """Code that solves the problem of a rule in one framework.

    - ``rule``: id of the rule.
    - ``api``: function to call. ``since``: first version of the framework with this function, or "" for all versions.
    - ``mode``: "eager", "static" or "any". Remedies for the recorded mode are preferred, then those for any mode.
    - ``verify``: arguments of ``perfkit verify``.
    - ``when``: placeholder → accepted values. The remedy is used only for these values. If several remedies fit, the
      first is used, so specific remedies come first.

    ``code``, ``api``, ``note`` and ``verify`` may have placeholders in braces. The rule and the recording fill them in
    (:func:`perfkit_core.advice.remedies.recorded_words`)."""

    rule: str
    code: str
    api: str
    since: str = ""
    mode: str = "any"
    note: str = ""
    verify: str = VERIFY
    when: Mapping[str, tuple[str, ...]] = field(default_factory=dict, hash=False)


class StepTimer(Protocol):
    """Measures step times in a process that runs no profiler. A step lasts from one update of the first optimizer to
    its next. ``updated`` is called after each update. ``times`` returns the durations in ns and the clock's name."""

    def updated(self) -> None: ...

    def times(self) -> tuple[Sequence[int], str]: ...


OperatorNames = Mapping[str, Callable[[str], str | None]]
"""Framework → function. The function maps a native operator name to the canonical name, or None if unknown."""

OperatorFormulas = Mapping[str, Callable[[str], "OperatorFormula | None"]]
"""Framework → function. The function maps a native operator name to the formula of its FLOPs, or to None."""


class RangeMeaning(NamedTuple):
    """The event that a framework marked with an NVTX range. ``kind`` and ``phase`` are those of the event table."""

    name: str
    kind: str
    phase: str | None = None  # phase of the event and of all events inside it
    step: int | None = None  # number of the step
    sequence: int | None = None  # number that a forward operator shares with its backward node
    shapes: str | None = None  # input shapes, as JSON text


RangeNames = Mapping[str, Callable[[str], RangeMeaning | None]]
"""Framework → function. The function returns the meaning of a range's text, or None if the framework did not write
it."""
