"""Readers of torch.compile's logs and of the compiled graphs in this process.

- the structured log that torch writes into the folder ``TORCH_TRACE``. It has everything that perfkit reads; the stack
  traces of C++ kernels are in it only if ``INDUCTOR_PROVENANCE=1`` was set.
- the folder ``torch_compile_debug`` that ``TORCH_COMPILE_DEBUG=1`` makes, or a part of it
- ``kernel_information.json`` of a package that AOTInductor made

Files are only parsed. Larger or more files than the limits below are not read."""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Any, Final

import msgspec

from perfkit_core.base.system.outside_text import decode_json
from perfkit_core.errors import SourceError
from perfkit_core.trace.model.compiled_graph import CompiledGraph, KernelCall
from perfkit_torch.compiled_code import CALL_EVENT, GraphTexts, fused_operators, ready_operator, stack_of

_LOG: Final = re.compile(r"dedicated_log_torch_trace_(?:rank_(\d{1,9})_)?.*\.log")
"""File name of a log. torch adds the rank if torch.distributed was initialised when the log began."""
_RECORD: Final = re.compile(rb"^V\d{4} [\d:.]+ \d+ [^\]]*\] (\{.*\})$")
_DEBUG_FOLDER: Final = "torch_compile_debug"
_CODE, _KERNELS = "output_code.py", "kernel_information.json"
_COMPILED: Final = ("fx_graph_transformed.py", "fx_graph_readable.py")
_MAPPINGS: Final = "inductor_provenance_tracking_node_mappings.json"
_TEXTS: Final = frozenset(
    {"dynamo_output_graph", "inductor_post_grad_graph", "inductor_output_code", "fx_graph_cache_miss",
     "fx_graph_cache_hit", "fx_graph_cache_bypass", "inductor_provenance_tracking_node_mappings",
     "inductor_provenance_tracking_kernel_stack_traces"}
)  # fmt: skip
_LARGEST_BYTES: Final = 64 << 20
"""Largest text that is read: a file, or an entry of a log."""
_MOST_BYTES: Final = 4 << 30
"""Largest number of bytes that are read of a log, or of all files of a folder."""
_MOST_GRAPHS: Final = 10_000
_MOST_FILES: Final = 100_000


def read(path: Path, rank: int | None = None) -> tuple[CompiledGraph, ...]:
    """Return the compiled graphs in a file or in the files of a folder, () if there are none. Logs of other ranks than
    ``rank`` are left out if the folder has logs of this rank. Raises SourceError if a file cannot be read, or for too
    many graphs or bytes."""
    graphs: dict[CompiledGraph, None] = {}
    try:
        files = [
            file for file in islice(_files(path), _MOST_FILES)
            if file == path or file.name in (_KERNELS, _CODE) or _LOG.fullmatch(file.name)
        ]  # fmt: skip
        states = [(file, file.stat()) for file in _of_rank(files, rank)]
        if sum(state.st_size for _, state in states) > _MOST_BYTES:
            raise SourceError(f"{path}: more than {_MOST_BYTES >> 30} GiB of files", "give a part of the folder")
        for file, state in states:
            graphs |= dict.fromkeys(_graphs(file, state.st_mtime_ns, state.st_size))
            if len(graphs) > _MOST_GRAPHS:
                raise SourceError(f"{path}: more than {_MOST_GRAPHS:,} compiled graphs", "give a part of the folder")
    except OSError as error:
        raise SourceError(f"{path}: cannot be read ({error.strerror or error})", "check the path") from None
    return tuple(graphs)


def _of_rank(files: Iterable[Path], rank: int | None) -> list[Path]:
    """Return the files without the logs of other ranks, if there are logs of this rank, else all files."""
    ranks = {file: match and match[1] and int(match[1]) for file in files for match in (_LOG.fullmatch(file.name),)}
    ranks_read = {None, rank} if rank is not None and rank in ranks.values() else {*ranks.values()}
    return [file for file, log_rank in ranks.items() if log_rank in ranks_read]


@lru_cache(maxsize=_MOST_GRAPHS)
def _graphs(file: Path, modified_ns: int, size: int) -> tuple[CompiledGraph, ...]:
    """Return the compiled graphs in a file. All ranks of a job may use the same files, so the last ones are cached, by
    the time of their last modification and their size. Raises OSError and SourceError."""
    graphs: Iterable[CompiledGraph] = ()
    if file.suffix == ".log":
        graphs = (texts.graph() for texts in logged(file))
    elif file.name == _KERNELS:
        graphs = (_of_kernels(_json(_text(file))),)
    elif file.suffix == ".py":
        compiled = next((part for name in _COMPILED if (part := file.parent / name).is_file()), None)
        mappings = file.parent / _MAPPINGS
        texts = GraphTexts(_text(file), compiled=_text(compiled) if compiled else "")
        texts.mappings = _json(_text(mappings)) if mappings.is_file() else {}
        graphs = (texts.graph(),)
    return tuple(dict.fromkeys(graph for graph in graphs if graph.calls))


def beside(path: Path, rank: int | None = None) -> list[Path]:
    """Return the files and folders next to a trace file, or in a run folder, that :func:`read` reads for a rank."""
    folder = path if path.is_dir() else path.parent
    try:
        return _of_rank([folder / name for name in _written(folder, folder.stat().st_mtime_ns)], rank)
    except OSError:
        return []


@lru_cache(maxsize=16)
def _written(folder: Path, modified_ns: int) -> list[str]:
    """Return the sorted names of the compiler's files in a folder. They are cached, as the folder may have a trace for
    each of thousands of ranks. Raises OSError."""
    names = (part.name for part in folder.iterdir())
    return sorted(name for name in names if _LOG.fullmatch(name) or name in (_DEBUG_FOLDER, _KERNELS))


def in_process(names: Iterable[str]) -> tuple[CompiledGraph, ...]:
    """Return the graphs that torch.compile made in this process and whose executions have events with these ``names``.

    The graphs themselves keep their code and, with ``INDUCTOR_PROVENANCE=1``, stack traces. If ``TORCH_TRACE`` is set,
    the log of this process adds the layers."""
    event_names = frozenset(names)
    if not any(name.startswith(CALL_EVENT.partition("{")[0]) for name in event_names):
        return ()
    in_memory = (texts for texts in _in_memory() if texts.key)
    recorded = {texts.key: texts for texts in in_memory if CALL_EVENT.format(key=texts.key) in event_names}
    log = _own_log()
    traced = {texts.code.strip(): texts.traced for texts in logged(log)} if log and recorded else {}
    for texts in recorded.values():
        texts.traced = traced.get(texts.code.strip(), "")
    graphs = (texts.graph() for texts in recorded.values())
    return tuple(graph for graph in graphs if graph.calls)


def _in_memory() -> Iterator[GraphTexts]:
    kind = getattr(sys.modules.get("torch._inductor.output_code"), "CompiledFxGraph", None)
    if kind is None:
        return
    for graph in gc.get_referrers(kind):  # every object refers to its class; this takes 0.1 s for a million objects
        if type(graph) is kind:
            texts = {name: getattr(graph, name, None) for name in ("source_code", "inductor_post_grad_graph_str")}
            code, compiled = (text if isinstance(text, str) else "" for text in texts.values())
            mappings, traces = (
                _json(getattr(graph, f"inductor_provenance_{name}_str", None)) for name in ("mapping", "stack_traces")
            )
            yield GraphTexts(code, getattr(graph, "_fx_graph_cache_key", None), compiled, "", mappings, traces)


def _own_log() -> Path | None:
    """Return the log of this process in the folder ``TORCH_TRACE``, or None if there is none."""
    folder = os.environ.get("TORCH_TRACE")
    for handler in logging.getLogger("torch.__trace").handlers:
        stream = getattr(handler, "stream", None)
        with contextlib.suppress(OSError, ValueError):  # the file is closed, or the folder is gone
            if folder and stream is not None:
                here = os.fstat(stream.fileno())
                return next((log for log in beside(Path(folder)) if os.path.samestat(log.stat(), here)), None)
    return None


def logged(path: Path) -> Iterator[GraphTexts]:
    """Yield the graphs in a structured log of torch, in the order in which they were compiled. Raises OSError.

    An entry is a line with a JSON object, followed by the lines of its text, which begin with a tab. A graph has an
    entry for each of its texts. All graphs of one compilation have the same ids. The last entry has the key."""
    traced: dict[object, str] = {}
    open_graphs: dict[object, GraphTexts] = {}
    for compilation, name, text in _entries(path):
        if name == "dynamo_output_graph":
            traced[compilation] = text
        elif name == "inductor_post_grad_graph":
            if compilation in open_graphs:
                yield open_graphs.pop(compilation)
            open_graphs[compilation] = GraphTexts(compiled=text, traced=traced.get(compilation, ""))
        elif compilation in open_graphs:
            graph = open_graphs[compilation]
            if name == "inductor_output_code":
                graph.code = text
            elif name == "inductor_provenance_tracking_node_mappings":
                graph.mappings = _json(text)
            elif name == "inductor_provenance_tracking_kernel_stack_traces":
                graph.stack_traces = _json(text)
            else:
                key = _json(text).get("key")
                graph.key = key if isinstance(key, str) else None
                yield open_graphs.pop(compilation)
    yield from open_graphs.values()


class _Entry(msgspec.Struct):
    rank: int | None = None
    frame_id: int | None = None
    frame_compile_id: int | None = None
    attempt: int | None = None
    compiled_autograd_id: int | None = None
    has_payload: str | None = None
    artifact: dict[str, Any] | None = None
    dynamo_output_graph: Any = None
    inductor_post_grad_graph: Any = None
    inductor_output_code: Any = None

    @property
    def name(self) -> str | None:
        if self.artifact is not None:
            return str(self.artifact.get("name"))
        return next((name for name in _TEXTS & set(self.__struct_fields__) if getattr(self, name) is not None), None)

    @property
    def compilation(self) -> tuple[object, ...]:
        return self.rank, self.compiled_autograd_id, self.frame_id, self.frame_compile_id, self.attempt


def _entries(path: Path) -> Iterator[tuple[object, str, str]]:
    """Yield the compilation, the name and the text of the wanted entries of a log."""
    entry: tuple[object, str] | None = None
    lines: list[bytes] = []
    size = read_bytes = 0
    with path.open("rb") as file:
        while (line := file.readline(_LARGEST_BYTES)) and read_bytes < _MOST_BYTES:
            read_bytes += len(line)
            if line.startswith(b"\t"):
                size += len(line)
                if entry and size <= _LARGEST_BYTES:
                    lines.append(line[1:])
                continue
            if entry and size <= _LARGEST_BYTES:
                yield *entry, b"".join(lines).decode("utf-8", "replace")
            entry, lines, size = None, [], 0
            match = _RECORD.match(line.rstrip(b"\r\n"))
            if match is None:
                continue
            try:
                decoded = decode_json(match[1], _Entry)
            except ValueError:
                continue
            name = decoded.name
            entry = (decoded.compilation, name) if name in _TEXTS and decoded.has_payload else None
    if entry and size <= _LARGEST_BYTES:
        yield *entry, b"".join(lines).decode("utf-8", "replace")


def _of_kernels(information: Mapping[str, Any]) -> CompiledGraph:
    """Return the graph of a package, by its ``kernel_information.json``: kernel → stack traces and nodes."""
    calls = []
    for key, about in information.items():
        name = key.rpartition(":")[0] if re.search(r":\d+$", key) else key
        traces = about.get("stack_traces") if isinstance(about, dict) else None
        stacks = [stack for text in traces if (stack := stack_of(text))] if isinstance(traces, list) else []
        operators, event = fused_operators(name), ready_operator(name) or name
        calls.append(
            KernelCall(event, name, bool(operators), operators or (event,), stacks=tuple(dict.fromkeys(stacks)))
        )
    return CompiledGraph(tuple(calls))


def _files(path: Path) -> Iterator[Path]:
    if not path.is_dir():
        yield path
        return
    for folder, folders, files in os.walk(path):
        folders.sort()
        yield from (Path(folder, name) for name in sorted(files))


def _text(path: Path) -> str:
    """Return the text of a file. Raises OSError, and SourceError if the file is larger than the limit."""
    with path.open("rb") as file:
        data = file.read(_LARGEST_BYTES + 1)
    if len(data) > _LARGEST_BYTES:
        raise SourceError(f"{path}: larger than {_LARGEST_BYTES >> 20} MiB", "it is no file of torch.compile")
    return data.decode("utf-8", "replace")


def _json(text: str | None) -> dict[str, Any]:
    """Return the object in a JSON text, {} for any other text."""
    try:
        return decode_json(text or "{}", dict[str, Any])
    except ValueError:
        return {}
