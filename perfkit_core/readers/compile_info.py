"""The compile information of a trace: which operators, layers and lines of code its compiled kernels were made of.

It is given by the user (``--compile-info``), else it is read from files next to the trace. A recording that already has
it keeps it.
"""

from __future__ import annotations

from pathlib import Path

from perfkit_core.assembly.kernel_calls import origins, with_graphs
from perfkit_core.errors import SourceError
from perfkit_core.language.messages import message
from perfkit_core.model.compiled_graph import CompiledGraph
from perfkit_core.model.meta import Finding
from perfkit_core.model.trace import Trace
from perfkit_core.plugins.manager import Plugins
from perfkit_core.readers.choices import chosen
from perfkit_core.system import paths


def attached(trace: Trace, path: Path, plugins: Plugins) -> Trace:
    """Return the trace with its compile information. ``path`` is its source. Raises SourceError if given paths cannot
    be read or have no compile information."""
    code = plugins.compiled_code(trace.meta.framework)
    if code is None or code.read is None or trace.meta.compiled:
        return trace
    given = [Path(text) for text in chosen().compile_info]
    places = given or (code.beside(path) if code.beside and not paths.is_remote(path) else [])
    graphs: dict[CompiledGraph, None] = {}
    for place in places:
        if not place.exists():
            raise SourceError(f"{place}: no such file or folder", "check --compile-info")
        found = code.read(place)
        if given and not found:
            hint = "docs/compiled-code.md lists the files that perfkit reads"
            raise SourceError(f"{place}: has no compile information of {code.framework}", hint)
        graphs |= dict.fromkeys(found)
    with_info = with_graphs(trace, tuple(graphs))
    if given and not len(origins(with_info).own):
        text = message("--compile-info matches no kernel of this trace: it may belong to another run")
        return trace.with_findings(Finding("compile-info-unused", text))
    return with_info
