"""Loading of sources (trace files and run folders) as a Trace, and streaming of a trace file to a stored file."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from perfkit_core.base.language.units import SIZES, parse_quantity
from perfkit_core.base.system import machine, paths
from perfkit_core.errors import SourceError, UsageError, unwritable
from perfkit_core.plugins.contracts import Source
from perfkit_core.plugins.manager import Plugins, get_plugins
from perfkit_core.readers import compile_info, graph_captures, join_ranks, overflow_check, trace_folder
from perfkit_core.readers.read_options import DEFAULT, ReadOptions, read_options
from perfkit_core.trace.assembly import server_steps
from perfkit_core.trace.assembly.chosen_steps import with_steps_on
from perfkit_core.trace.model.meta import Finding, about_job, mixed_levels, mixed_runs
from perfkit_core.trace.model.serving_step import KINDS
from perfkit_core.trace.model.trace import Trace
from perfkit_core.trace.storage import store
from perfkit_core.trace.storage.bytestream import UTF_16, head
from perfkit_core.trace.storage.checksums import MAGIC as PARQUET_MAGIC
from perfkit_core.trace.storage.recorded_events import RecordedWriter
from perfkit_core.trace.storage.store import PARTIAL_SUFFIX

_OWN_PAGE = b'<meta name="generator" content="perfkit">'
"""Tag near the beginning of every HTML page that perfkit writes."""
_NO_EVENTS: Final = re.compile(rb'\s*(?:\{\s*"traceEvents"\s*:\s*\[\s*\]\s*\}|\[\s*\])\s*')


def load(
    sources: paths.PathLike | Sequence[paths.PathLike],
    *,
    partial: bool = False,
    step_on: str | None = None,
    plugins: Plugins | None = None,
    graph_capture: paths.PathLike | Sequence[paths.PathLike] = (),
    step_kind: str | None = None,
    compile_info: paths.PathLike | Sequence[paths.PathLike] = (),
) -> Trace:
    """Read one source, or one source for each rank, as one Trace.

    A source is a trace file, a run folder or a folder of trace files. It is a path, or a URL that fsspec supports
    (``s3://…``, ``gs://…``, ``https://…``). If ``partial`` is set, the readable parts of damaged files are kept, and a
    data-quality warning reports the loss. ``plugins`` provides the readers; the default is all installed plugins.
    Raises SourceError, and UsageError if no range matches ``step_on``.

    ``step_on`` is the name of the ranges that are steps, or an RE2 pattern, or "none"; by default, the recorded steps
    are used.
    ``graph_capture`` names recordings of graph captures (files or folders). They give the kernels of replayed graphs
    their operators. By default, those next to the sources are used. ``step_kind`` keeps only this step kind of an
    inference server, such as ``decode``. ``compile_info`` names files or folders that the framework's compiler wrote
    about its kernels. By default, those next to the sources are used.
    """
    options = read_options(
        partial=partial, step_on=step_on, step_kind=step_kind, graph_capture=graph_capture, compile_info=compile_info
    )
    listed = list(sources) if isinstance(sources, Sequence) and not isinstance(sources, str) else [sources]
    return load_all(listed, options, plugins)


def load_all(
    sources: Sequence[paths.PathLike], options: ReadOptions = DEFAULT, plugins: Plugins | None = None
) -> Trace:
    """Read the sources of one profile as one Trace, as :func:`load` does."""
    files, findings = files_of(sources, plugins or get_plugins(), options.partial)
    traces, lost = join_ranks.read_each(files, lambda path: load_one(path, options, plugins), options.partial)
    trace = join_ranks.one_job(traces)
    if len(traces) > 1:
        trace = overflow_check.checked(trace)
    if options.step_on is not None:
        trace = with_steps_on(trace, options.step_on)
    if len(sources) == 1 < len(files):
        trace = named(trace, paths.as_path(sources[0]))
    levels = mixed_levels([part.meta for part in traces])
    several = traces if len(trace.meta.ranks) > 1 else ()
    runs = mixed_runs((part.meta, *join_ranks.steps_and_groups(part)) for part in several)
    return trace.with_findings(*findings, *lost, *levels, *runs, *about_job(trace.meta))


def as_trace(source: Trace | paths.PathLike | Sequence[paths.PathLike], plugins: Plugins | None = None) -> Trace:
    """Return a Trace as it is, and read anything else by :func:`load`."""
    return source if isinstance(source, Trace) else load(source, plugins=plugins)


def files_of(
    sources: Sequence[paths.PathLike], plugins: Plugins, partial: bool = False
) -> tuple[list[Path], tuple[Finding, ...]]:
    """Return the files (also those in folders) and run folders to read, and quality warnings. Raises SourceError."""
    places = [paths.as_path(source) for source in sources]
    if not places:
        raise SourceError("no source given", "give a run folder or a trace file")
    for path in places:
        check_rereadable(path)
    if len({paths.identity(path) for path in places}) < len(places):
        raise SourceError("the same source is given twice", "give each rank once")
    readers = list(plugins.sources())
    files: list[Path] = []
    findings: list[Finding] = []
    for path in places:
        with paths.reaching(path):
            more, about = trace_folder.expanded(path, readers, partial)
        files += more
        findings += about
    return files, tuple(findings)


def check_rereadable(path: Path) -> None:
    """Raise SourceError for a pipe or device, because sources are read twice: to detect the format, then to load."""
    if not paths.is_remote(path) and path.exists() and not (path.is_dir() or path.is_file()):
        raise SourceError(f"{path}: a pipe or a device, which cannot be read twice", "write the data to a file first")


def check_exists(path: Path) -> None:
    if not paths.exists(path):
        raise SourceError(f"{path}: no such file or folder", "check the path")


def beside(path: Path, plugins: Plugins) -> list[Path]:
    """Return the existing files and folders next to a local trace file that are read together with it by default."""
    neighbours = graph_captures.beside(path) + compile_info.beside(path, plugins)
    return [neighbour for neighbour in neighbours if neighbour.exists() or neighbour.is_symlink()]


def load_one(path: Path, options: ReadOptions = DEFAULT, plugins: Plugins | None = None) -> Trace:
    """Read one file or run folder. Without --max-memory, $PERFKIT_MAX_MEMORY limits the memory of reading."""
    text = os.environ.get(machine.ENVIRONMENT)
    if not text or machine.is_limited():
        return _load_one(path, options, plugins or get_plugins())
    with machine.limited(most_memory(text)):
        return _load_one(path, options, plugins or get_plugins())


def most_memory(text: str) -> float:
    """Return the bytes of a size with a unit, such as ``8 GiB``. Raises UsageError."""
    option = f"--max-memory or {machine.ENVIRONMENT}"
    try:
        most = parse_quantity(text, SIZES, needs_unit=True)
    except UsageError as error:
        raise UsageError(f"{option}: {error.message}", error.hint) from None
    if most <= 0:
        raise UsageError(f"{option}: {text!r} is no memory", "example: 8 GiB")
    return most


def _load_one(path: Path, options: ReadOptions, plugins: Plugins) -> Trace:
    store.flush(path)
    with paths.reaching(path):
        check_exists(path)
        start = head(path) if paths.is_file(path) else b""
        if not start and paths.is_file(path) and path.stat().st_size == 0:
            raise SourceError(f"{path}: the file is empty", "the profiler may have been interrupted before writing it")
        trace = read_with(reader(path, start, plugins), path, options.partial)

    def read(other: Path) -> Trace:
        with paths.reaching(other):
            return read_with(reader(other, head(other), plugins), other, options.partial)

    trace = graph_captures.with_operators(trace, path, options.graph_captures, read)
    if options.step_kind is not None:
        trace = _of_step_kind(trace, options.step_kind, path)
    trace = named(trace, path)
    with naming(path):
        trace = overflow_check.checked(trace)
    if trace.meta.recording is None and paths.is_file(path):
        trace = trace.with_meta(recording=join_ranks.recording_of_name(path))
    return compile_info.attached(trace, path, plugins, [Path(text) for text in options.compile_info])


def _of_step_kind(trace: Trace, kind: str, path: Path) -> Trace:
    kinds = {step.kind for step in server_steps.serving_steps(trace)[1]}
    if kind not in kinds:
        names = ", ".join(kind for kind in KINDS if kind in kinds)
        hint = f"recorded kinds: {names}" if names else "only inference servers record kinds of steps"
        raise UsageError(f"{path}: no step of the kind {kind} was recorded", hint)
    return server_steps.of_kind(trace, kind)


def named(trace: Trace, path: Path) -> Trace:
    """Return the trace with the path as its source. Secrets in a web address are removed."""
    return trace.with_meta(source=paths.without_secrets(path))


def read_with(source: Source, path: Path, partial: bool = False) -> Trace:
    with naming(path):
        return source.read(path, partial)


@contextmanager
def naming(path: Path) -> Iterator[None]:
    try:
        yield
    except SourceError as error:
        near = tuple(f"{folder}/" for folder in [*path.parents][:2])  # of a file next to it
        if str(path) in error.message or error.message.startswith(near):
            raise
        raise SourceError(f"{path}: {error.message}", error.hint) from None


def reader(path: Path, start: bytes, plugins: Plugins) -> Source:
    """Return the reader that suits a path best, by its name and its first bytes ``start``. Raises SourceError."""
    rated = [(source.sniff(path, start), source) for source in plugins.sources()]
    best = max((rating for rating, _ in rated), default=0)
    if best:
        return next(source for rating, source in rated if rating == best)
    if start.startswith(UTF_16):
        raise SourceError(f"{path}: a text in UTF-16; perfkit reads UTF-8", "convert it: iconv -f UTF-16 -t UTF-8")
    if _NO_EVENTS.fullmatch(start):
        hint = "the profiler may have recorded nothing: call step() or stop() after the recorded iterations"
        raise SourceError(f"{path}: the list of events is empty", hint)
    if path.name.endswith(PARTIAL_SUFFIX):
        raise SourceError(
            f"{path}: contains reduced tables instead of events; only perfkit summary and perfkit report read it",
            "give the run from which the file was made",
        )
    if _OWN_PAGE in start:
        raise SourceError(
            f"{path}: an HTML page of perfkit, which contains no events",
            "give the run folder or the trace from which the page was made",
        )
    formats = ", ".join(source.description for _, source in rated)
    raise SourceError(f"{path}: unknown profile format", f"perfkit reads {formats}")


def stream(
    source: str | os.PathLike[str],
    to: str | os.PathLike[str],
    *,
    partial: bool = False,
    keep_host: bool = False,
    plugins: Plugins | None = None,
) -> int:
    """Write the events of a trace file to a Parquet file while the trace file is read. Return the number of events.

    The events are never all in memory. What depends on all events (parents, launches, steps, phases) is computed when
    the Parquet file is loaded. Unless ``keep_host`` is set, metadata is left out as in other exports. Raises
    SourceError if the trace file cannot be read. Raises UsageError if its format cannot be streamed, or the target
    cannot be written.
    """
    path, target = paths.as_path(source), paths.as_path(to)
    check_rereadable(path)
    with paths.reaching(path):
        check_exists(path)
        if paths.is_folder(path):
            raise UsageError(f"{path}: a folder cannot be streamed", "give one trace file, or omit --stream")
        start = head(path)
    if start.startswith(PARQUET_MAGIC):
        raise UsageError(f"{path}: already in Parquet", "omit --stream")
    chosen = reader(path, start, plugins or get_plugins())
    if chosen.stream is None:
        text = f"{path}: {chosen.description} cannot be streamed, because its events depend on the rest of the file"
        raise UsageError(text, "omit --stream")
    completed_by = chosen.name if chosen.complete is not None else ""
    try:
        with (
            naming(path),
            paths.replacing(target) as temporary,
            RecordedWriter(Path(temporary), completed_by, keep_host) as writer,
        ):
            chosen.stream(path, partial, writer)
            return writer.rows
    except OSError as error:
        raise unwritable(target, error) from None
