"""The objects that plugins and built-ins return from their hooks, and the results of checks for ``perfkit doctor``.
Those of views are in :mod:`.view`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final, Generic, Literal, Protocol, TypeVar

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
    from perfkit_core.trace.model.account import ReadEvents
    from perfkit_core.trace.model.meta import Finding, TraceMeta
    from perfkit_core.trace.model.report_data import Report
    from perfkit_core.trace.model.trace import Trace

Status = Literal["ok", "note", "warning", "problem"]
"""``note``: something optional is missing. ``warning``: perfkit works, but less well. ``problem``: something that
perfkit or an installed framework needs is broken."""

PROBLEM: Final = "problem"


@dataclass(frozen=True, slots=True)
class Check:
    """The result of a check.

    - ``name``: dotted name. Its first part is the topic: ``dependency.numpy``, ``framework.torch.import``.
    - ``text``: what was found. ``fix``: what to do about it.
    - ``data``: the same as plain data for JSON. Unknown values are None."""

    name: str
    status: Status
    text: str
    fix: str = ""
    data: Mapping[str, Any] = field(default_factory=dict, hash=False)


@dataclass(frozen=True, slots=True)
class FrameworkChecks:
    """Checks of a framework.

    - ``distributions``: names of all packages that install this module. The first one is that of perfkit's extra.
    - ``installed()`` checks the metadata of installed packages. It must be quick, and must not import the framework.
    - ``running()`` imports the framework, and yields what works: the devices that it sees, and a recording. It may
      raise, crash or hang: perfkit calls it in a new process with a time limit, and keeps what it yielded before."""

    distributions: tuple[str, ...]
    installed: Callable[[], Sequence[Check]]
    running: Callable[[], Iterable[Check]]


RuleInput = TypeVar("RuleInput")
Candidate = TypeVar("Candidate")


class EventWriter(Protocol):
    """The file to which a reader streams events
    (:class:`perfkit_core.trace.storage.recorded_events.RecordedWriter`)."""

    rows: int

    def write(self, batch: Any) -> None: ...

    def close(
        self,
        meta: TraceMeta,
        quality: tuple[Finding, ...] = (),
        rank: int | None = None,
        base_ns: int = 0,
        account: Sequence[ReadEvents] = (),
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
    - ``files(folder)`` returns the files to read in a folder that a profiler wrote, one for each rank, or (). ``files``
      is None if the profiler writes no folders of its own.
    - ``complete(recorded, meta)`` is called when a streamed file is loaded. It adds data that depends on all events,
      and returns the events, the metadata and findings. ``complete`` is None if the format has no such data."""

    name: str
    description: str
    sniff: Callable[[Path, bytes], int]
    read: Callable[[Path, bool], Trace]
    peek: Callable[[Path], int | None] | None = None
    stream: Callable[[Path, bool, EventWriter], None] | None = None
    complete: Callable[[Any, TraceMeta], tuple[Any, TraceMeta, tuple[Finding, ...]]] | None = None  # RecordedEvents
    files: Callable[[Path], Sequence[Path]] | None = None


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
