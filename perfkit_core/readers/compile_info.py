"""The compile information of a trace: which operators, layers and lines of code its compiled kernels were made of.

It is given by the user (``--compile-info``), else it is read from files next to the trace. A recording that already has
it keeps it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from perfkit_core.base.language.messages import Message, message
from perfkit_core.base.system import paths
from perfkit_core.errors import SourceError
from perfkit_core.plugins.manager import Plugins
from perfkit_core.trace.assembly.kernel_calls import origins, with_graphs
from perfkit_core.trace.model.compiled_graph import CompiledGraph
from perfkit_core.trace.model.meta import Finding
from perfkit_core.trace.model.trace import Trace


def attached(trace: Trace, path: Path, plugins: Plugins, requested: Sequence[Path] = ()) -> Trace:
    """Return the trace with its compile information. ``path`` is its source. Raises SourceError if ``requested`` paths
    cannot be read or have no compile information. A file that merely lies next to the trace is left out if it is
    damaged."""
    code = plugins.framework(trace.meta.framework).compiled_code()
    for source in requested:
        if not source.exists():
            raise SourceError(f"{source}: no such file or folder", "check --compile-info")
    if code is None or code.read is None:
        text = message(
            "--compile-info is not used, because perfkit reads no such files for the framework of this trace"
        )
        return _unused(trace, text) if requested else trace
    if trace.compiled_graphs:
        text = message("--compile-info is not used, because the recording already has this information")
        return _unused(trace, text) if requested else trace
    rank = trace.meta.ranks[0] if len(trace.meta.ranks) == 1 else None
    sources = requested or (code.beside(path, rank) if code.beside and not paths.is_remote(path) else [])
    graphs: dict[CompiledGraph, None] = {}
    unreadable = []
    for source in sources:
        try:
            read = code.read(source, rank)
        except SourceError as error:
            if requested:
                raise
            text = message("a file next to the trace is left out: {reason}", reason=paths.readable(error.message))
            unreadable.append(Finding("compile-info-unreadable", text, note=True))
            continue
        if requested and not read:
            hint = "docs/compiled-code.md lists the files that perfkit reads"
            raise SourceError(f"{source}: has no compile information of {trace.meta.framework}", hint)
        graphs |= dict.fromkeys(read)
    with_info = with_graphs(trace, tuple(graphs)).with_findings(*unreadable)
    if requested and not len(origins(with_info).call_rows):
        return _unused(trace, message("--compile-info matches no kernel of this trace: it may belong to another run"))
    return with_info


def beside(path: Path, plugins: Plugins) -> list[Path]:
    """Return the files and folders next to a trace file that any framework's compiler may have written."""
    readers = [framework.compiled_code() for framework in plugins.frameworks().values()]
    return [file for code in readers if code and code.beside for file in code.beside(path, None)]


def _unused(trace: Trace, text: Message) -> Trace:
    return trace.with_findings(Finding("compile-info-unused", text))
