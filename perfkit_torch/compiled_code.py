"""The kernels of a graph that TorchInductor compiled: operators, layers and lines of the model.

Inductor writes several texts about a graph. All of them are optional, except the output code:

- output code: a Python module that calls the kernels one after the other. Comments before a call list the nodes of the
  traced graph and the ATen operators of its kernel. C++ kernels have no such comments.
- post-grad graph: the graph that was compiled. Comments show the line of the model for each node.
- traced graph (``dynamo_output_graph``): calls of torch functions. The names of their parameters show the layers.
- node mappings and stack traces of each call, if ``INDUCTOR_PROVENANCE=1`` is set.

The texts are parsed, never executed."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from perfkit_core.base.operators.names import joined_operators
from perfkit_core.trace.model.compiled_graph import CompiledGraph, KernelCall, common_parent
from perfkit_torch.operator_names import operator_name

CALL_EVENT: Final = "## Call CompiledFxGraph {key} ##"
"""Event of an execution of a compiled graph, since torch 2.9. ``key`` is the graph's key in Inductor's cache."""
GENERATED: Final = re.compile(
    r"^(?:graph_\d+_)?(?:triton|cpp)_(?:(?:poi|per|red|tem|for|split_scan)_)?fused_(?:(.+)_)?\d+$"
)
"""Name of a kernel that Inductor generated. The group contains the names of its operators."""
_DEFINITION: Final = re.compile(r"^(\w+) = async_compile\.")
_RECORD: Final = re.compile(r'RecordFunctionHandle \w+\("(\w+)"')
_SOURCES: Final = re.compile(
    r"^\s*# (?:Topologically Sorted|Unsorted) Source Nodes: \[(.*?)\], Original ATen: \[(.*?)\]"
)
_MAPPING: Final = re.compile(r"^#   (\w+) => (.+)$")
_FRAGMENT: Final = re.compile(r"^#   %(\w+) .*= call_function\[")
_HANDLE: Final = re.compile(r"^\s*# \[Provenance debug handles\] (.+:\d+)\s*$")
_BODY: Final = re.compile(r"^\s*def (?:call|partition_\d+)\(")
_KERNEL_CALL: Final = re.compile(r"^\s+(?:\w+ = )?(\w+)(?:\.run)?\(")
_CALL: Final = re.compile(r"^\s+(?:\w+ = )?([\w.]+)\(")
_READY: Final = re.compile(r"(?:extern_kernels|aten|torch\.ops\.(\w+))\.(\w+)(?:\.\w+)?")
_FRAME: Final = re.compile(r'File "(.+)", line (\d{1,18}), in (.+)')
_SOURCE_LINE: Final = re.compile(r"^\s*#.*?File: (.+?):(\d{1,18}) in ([^,]+), code:")
_COMMENT: Final = re.compile(r"^\s*#")
_NODE: Final = re.compile(r'^\s+(\w+)(?:\s*:\s*"[^"]*")?\s*=\s*(.+)$')
_LAYER: Final = re.compile(r"\b[lLgG]_\w*?(?:_modules_(\w+))?_(?:parameters|buffers)_\w+")
"""Parameter of a layer. The group contains the path of the layer. It is empty for the compiled module itself."""


@dataclass(slots=True)
class GraphTexts:
    """What Inductor wrote about one graph. An empty text is unknown. ``key`` is the graph's key in its cache."""

    code: str = ""
    key: str | None = None
    compiled: str = ""  # post-grad graph
    traced: str = ""
    mappings: Mapping[str, Any] = field(default_factory=dict)
    stack_traces: Mapping[str, Any] = field(default_factory=dict)

    def graph(self) -> CompiledGraph:
        event = CALL_EVENT.format(key=self.key) if self.key else None
        return CompiledGraph(tuple(_Calls(self)), event)


@functools.lru_cache(maxsize=65536)
def fused_operators(kernel: str) -> tuple[str, ...]:
    """Return the operators in the name of a generated kernel, () for other names. Words that are no operators of ATen,
    such as a custom operator, have no namespace."""
    match = GENERATED.match(kernel)
    if match is None or match[1] is None:
        return ()
    parts = joined_operators(match[1], _is_operator, ascending=True)
    return tuple(f"aten::{name}" if is_known else name for name, is_known in parts)


def _is_operator(name: str) -> bool:
    return not name.endswith("_") and operator_name(f"aten::{name}") is not None


def ready_operator(called: str) -> str | None:
    """Return the operator that code calls as ``torch.ops.mkldnn._linear_pointwise.default``, ``extern_kernels.mm`` or
    ``aten.sort.stable``: ``mkldnn::_linear_pointwise``, ``aten::mm``, ``aten::sort``. None for other texts."""
    match = _READY.fullmatch(called)
    return f"{match[1] or 'aten'}::{match[2]}" if match else None


@dataclass(frozen=True, slots=True)
class _Node:
    frame: str | None  # "file(line): function"
    layers: tuple[str, ...]


class _Calls:
    """The kernel calls in the output code of a graph, in order."""

    def __init__(self, texts: GraphTexts) -> None:
        self._code = texts.code.splitlines()
        self._compiled, self._traced = parse_graph(texts.compiled), parse_graph(texts.traced)
        self._made_from = _lists(texts.mappings.get("postToPre"))
        self._nodes_of = _lists(texts.mappings.get("cppCodeToPost"))
        self._traces = _lists(texts.stack_traces)
        self._events: dict[str, str] = {}  # generated kernel → name of its events
        self._fragments: dict[str, tuple[list[str], dict[str, list[str]]]] = {}
        self._by_frame: dict[str, list[str]] = {}
        for node in self._traced.values():
            if node.frame:
                self._by_frame.setdefault(node.frame, []).extend(node.layers)

    def __iter__(self) -> Iterator[KernelCall]:
        body = self._read_definitions()
        sources: tuple[list[str], list[str]] = [], []
        handle = ""
        for line in self._code[body:]:
            if match := _SOURCES.match(line):
                sources = _items(match[1]), _items(match[2])
            elif match := _HANDLE.match(line):
                handle = match[1]
            elif (match := _KERNEL_CALL.match(line)) and match[1] in self._events:
                yield self._call(self._events[match[1]], match[1], handle, *sources)
                sources, handle = ([], []), ""
            elif (match := _CALL.match(line)) and (event := ready_operator(match[1])):
                yield self._call(event, event, handle, *sources)
                sources, handle = ([], []), ""

    def _read_definitions(self) -> int:
        """Read the definitions of the generated kernels, and return the number of the first line after them."""
        fragment: list[str] = []
        mapping: dict[str, list[str]] = {}
        kernel = None
        for number, line in enumerate(self._code):
            if _BODY.match(line):
                return number
            if _SOURCES.match(line):
                fragment, mapping = [], {}
            elif match := _MAPPING.match(line):
                mapping[match[1]] = _items(match[2])
            elif match := _FRAGMENT.match(line):
                fragment.append(match[1])
            elif match := _DEFINITION.match(line):
                kernel = match[1]
                self._events[kernel] = kernel
                self._fragments[kernel] = fragment, mapping
                fragment, mapping = [], {}
            elif kernel and (match := _RECORD.search(line)):
                self._events[kernel] = match[1]
        return len(self._code)

    def _call(self, event: str, kernel: str, handle: str, sources: list[str], aten: list[str]) -> KernelCall:
        fused = kernel in self._events
        fragment, mapping = self._fragments.pop(kernel, ([], {})) if not handle else ([], {})
        compiled = self._nodes_of.get(handle) or fragment
        made_from = {node: [name] for name, nodes in mapping.items() for node in nodes} | self._made_from
        traced = [name for node in compiled for name in made_from.get(node, ())]
        if not traced:
            # The nodes of a backward graph have names of their own. The last node of a ready-made operator is its own.
            named = [name for name in sources if name in self._traced and name not in self._compiled]
            traced = named if fused else named[-1:]
        stacks = [stack for text in self._traces.get(handle, ()) if (stack := stack_of(text))]
        if not stacks:
            nodes = [self._compiled.get(node) for node in compiled] or [self._traced.get(name) for name in traced]
            stacks = [node.frame for node in nodes if node and node.frame]
        layers = [layer for name in traced if name in self._traced for layer in self._traced[name].layers]
        if not traced:
            layers = [layer for stack in stacks for layer in self._by_frame.get(stack.partition(";")[0], ())]
        operators = [name.replace(".", "::", 1) for name in aten] or fused_operators(kernel)
        return KernelCall(
            event, kernel, fused, tuple(operators or ([] if fused else [event])),
            tuple(dict.fromkeys(layers)), tuple(dict.fromkeys(stacks)),
        )  # fmt: skip


def parse_graph(text: str) -> dict[str, _Node]:
    """Return the nodes of a printed graph by name. Consecutive nodes of one call stack form a block.

    - A node with parameters belongs to their layers. ``""`` is the compiled module itself.
    - Another node of a block with parameters belongs to the layer around the layers of these parameters: in
      ``x = relu(self.fc(x))``, ``relu`` belongs to the layer that contains ``fc``.
    - The nodes of any other block belong to the innermost layer around the layers of the blocks before and after it."""
    blocks: list[_Block] = []
    for line in text.splitlines():
        if _COMMENT.match(line) or not blocks:
            source_line = _SOURCE_LINE.match(line)
            blocks.append(_Block(f"{source_line[1]}({source_line[2]}): {source_line[3]}" if source_line else None))
        elif match := _NODE.match(line):
            used = _LAYER.findall(match[2].partition(";  ")[0])
            blocks[-1].layers[match[1]] = tuple(dict.fromkeys(path.replace("_modules_", ".") for path in used))
    has_layers = any(block.around is not None for block in blocks)
    before, after = (_nearest(ordered) for ordered in (blocks, blocks[::-1]))
    nodes: dict[str, _Node] = {}
    for block, first, last in zip(blocks, before, after[::-1], strict=True):
        around = block.around if block.around is not None else common_parent((first, last)) or ""
        inherited = (around,) if has_layers else ()
        nodes |= {name: _Node(block.frame, layers or inherited) for name, layers in block.layers.items()}
    return nodes


@dataclass(slots=True)
class _Block:
    """Nodes of one call stack: ``layers`` of the parameters of each node."""

    frame: str | None
    layers: dict[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def around(self) -> str | None:
        """The innermost layer around the layers whose parameters the block uses, or None if it uses none."""
        used = {layer for layers in self.layers.values() for layer in layers}
        if len(used) == 1:
            return used.pop().rpartition(".")[0]
        return (common_parent(used) or "") if used else None


def _nearest(blocks: Sequence[_Block]) -> list[str]:
    """Return for each block the layer around the nearest earlier block with parameters, ``""`` if there is none."""
    layers, nearest = [], ""
    for block in blocks:
        layers.append(nearest)
        nearest = nearest if block.around is None else block.around
    return layers


def stack_of(text: object) -> str | None:
    """Return a stack trace as ``file(line): function;…``, innermost first, or None if it has no frames."""
    frames = _FRAME.findall(text) if isinstance(text, str) else []
    return ";".join(f"{file}({line}): {function}" for file, line, function in reversed(frames)) or None


def _items(text: str) -> list[str]:
    return [item.strip() for item in text.split(",") if item.strip()]


def _lists(value: object) -> dict[str, list[Any]]:
    """Return the lists of texts in a decoded JSON object. Anything else is left out."""
    pairs: Iterable[tuple[object, object]] = value.items() if isinstance(value, Mapping) else ()
    return {
        str(key): [item for item in items if isinstance(item, str)]
        for key, items in pairs
        if isinstance(items, Sequence) and not isinstance(items, str)
    }
