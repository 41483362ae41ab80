"""The recordings of graph captures that belong to a trace file.

They are given (``--graph-capture``), or found next to the trace file ``NAME.json.gz``:

- ``NAME.capture.json.gz``
- the files in the folder ``capture_traces``, in which servers write them

Servers write one file for each batch size. The batch size is in the file ``execution_details.json`` of the folder
(``[{"file": …, "batch_size": 32}]``), or in the file name (``bs_32_rank0.json.gz``). A file is read if steps of the
trace use its batch size, or if its batch size is unknown.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from perfkit_core.assembly import graph_capture
from perfkit_core.assembly.server_steps import serving_steps
from perfkit_core.errors import SourceError
from perfkit_core.language.messages import message
from perfkit_core.model.meta import Finding
from perfkit_core.model.trace import Trace
from perfkit_core.system.paths import as_path, exists, is_folder, reaching, readable

FOLDER: Final = "capture_traces"
DETAILS: Final = "execution_details.json"
_SUFFIX: Final = re.compile(r"\.json(?:\.gz)?$", re.IGNORECASE)
_CAPTURE: Final = ".capture"
_BATCH: Final = re.compile(r"bs_(\d+)(?!\d)")


def is_beside(file: Path, others: Iterable[Path]) -> bool:
    """Return whether a file is the recording of a graph capture that belongs to another of the files."""
    stem = _SUFFIX.sub("", file.name)
    return stem.endswith(_CAPTURE) and any(
        _SUFFIX.sub("", other.name) == stem.removesuffix(_CAPTURE) for other in others
    )


def with_operators(trace: Trace, path: Path, given: Sequence[str], read: Callable[[Path], Trace]) -> Trace:
    """Return the trace with the operators of captured graphs (:mod:`perfkit_core.assembly.graph_capture`). Raises
    SourceError if a given file does not exist, cannot be read or has no captured graph. A file that only lies next to
    the trace may belong to something else. If it cannot be read, a note says so."""
    if not given and not _SUFFIX.search(path.name):  # a stored run has the operators, and reads columns on demand
        return trace
    for place in map(as_path, given):
        with reaching(place):
            if not exists(place):
                raise SourceError(f"{place}: no such file or folder", "check --graph-capture")
    if not graph_capture.graph_launches(trace).any():
        if given:
            text = message("the recording has no launches of graphs, so the recording of the capture is not used")
            return trace.with_findings(Finding("graph-capture-unused", text, note=True))
        return trace
    skipped: list[Finding] = []

    @contextmanager
    def optional(place: Path) -> Iterator[None]:
        try:
            yield
        except (SourceError, OSError) as error:
            if given:
                raise
            reason = error.message if isinstance(error, SourceError) else f"{place}: {error.strerror or error}"
            text = message("{reason}; this recording of a graph capture is not used", reason=readable(reason))
            skipped.append(Finding("graph-capture-unreadable", text, note=True))

    files: list[tuple[Path, int | None]] = []
    places = [as_path(place) for place in given] or beside(path)
    for place in places:
        with optional(place), reaching(place):
            more = _files(place) if given or exists(place) else []
            if given and not more:
                raise SourceError(f"{place}: contains no recording of a graph capture", "check --graph-capture")
            files += more
    graphs, names = [], []
    for file, batch in _needed(files, _batches(trace)):
        with optional(file):
            found = graph_capture.captured_graphs(read(file), batch)
            if not found and given:
                raise SourceError(
                    f"{file}: no graph was captured in this recording", "record while the server captures its graphs"
                )
            graphs += found
            names += [readable(file.name)] if found else []
    trace = trace.with_findings(*skipped)
    if given and not graphs:
        text = message("no given recording of a graph capture has a batch size that the steps use")
        trace = trace.with_findings(Finding("graph-capture-unused", text))
    return graph_capture.attributed(trace, graphs, names) if graphs else trace


def beside(path: Path) -> list[Path]:
    """Return the files and the folder next to a trace file in which recordings of its graph captures may be."""
    stem = _SUFFIX.sub("", path.name)
    return [*(path.with_name(f"{stem}{_CAPTURE}{end}") for end in (".json.gz", ".json")), path.with_name(FOLDER)]


def _files(place: Path) -> list[tuple[Path, int | None]]:
    """Return the files of a place, and their batch sizes, as far as known."""
    if not is_folder(place):
        return [(place, None)]
    names = sorted(file for file in place.iterdir() if _SUFFIX.search(file.name) and file.name != DETAILS)
    sizes = _details(place / DETAILS)
    matches = {file: _BATCH.match(file.name) for file in names}
    return [(file, sizes.get(file.name, int(match[1]) if match else None)) for file, match in matches.items()]


def _details(file: Path) -> dict[str, int]:
    try:
        entries = json.loads(file.read_text(encoding="utf-8")) if exists(file) else []
    except (ValueError, RecursionError):  # the batch sizes then come from the file names
        return {}
    return {
        entry["file"]: entry["batch_size"]
        for entry in (entries if isinstance(entries, list) else [])
        if isinstance(entry, dict) and isinstance(entry.get("file"), str) and isinstance(entry.get("batch_size"), int)
    }


def _batches(trace: Trace) -> set[int] | None:
    """Return the numbers of tokens of the steps that launch graphs, or None if a step does not say it."""
    rows, steps = serving_steps(trace)
    tokens = {int(trace.ints("step")[row]): step.tokens for row, step in zip(rows, steps, strict=True)}
    launching = set(trace.ints("step")[graph_capture.graph_launches(trace)].tolist())
    sizes = {tokens.get(step) for step in launching}
    return None if None in sizes else {size for size in sizes if size is not None}


def _needed(files: Sequence[tuple[Path, int | None]], batches: set[int] | None) -> list[tuple[Path, int | None]]:
    """Return the files that steps with these batch sizes may have replayed. A step replays the graph of the smallest
    batch size that it fits in."""
    known = sorted({batch for _, batch in files if batch is not None})
    if batches is None or not known:
        return list(files)
    used = {next((batch for batch in known if batch >= size), None) for size in batches}
    return [(file, batch) for file, batch in files if batch is None or batch in used]
