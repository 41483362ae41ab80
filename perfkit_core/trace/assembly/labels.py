"""Labels and descriptions that perfkit adds to a recording, for layers, for collectives and for waits for input.

Layers: ``annotate`` adds two kinds of events. Special characters in their names are quoted as in URLs.

- ``perfkit.module:layers.0:Linear`` spans a call of the layer ``layers.0`` of class ``Linear``.
- ``perfkit.module:layers.0:Linear:backward`` marks the start of the layer's backward pass, in its first backward node.
  If the framework does not link nodes to layers, the name ends with a list of the nodes that the call created, such as
  ``:MatmulGradNode,AddGradNode*2``.

Collectives: if the framework does not record a collective, the adapter adds an event with a name such as
``perfkit.collective:all_reduce:65536:float32:0:1c291ca3:2:host``. The fields are: name, number of elements, their type,
group, members, group size, and ``host`` or ``device``. Labels of sends, receives and all_to_all have three more fields:
peer, received elements, and received rows. Unknown fields are empty.

Waits for input: ``perfkit.input:batches`` spans a wait of ``perfkit.profile`` for the next item of ``batches``, the
name of a generator or the class of a loader.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from typing import Final, NamedTuple
from urllib.parse import quote, unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from perfkit_core.base.algorithms.arrays import BoolArray, IntArray, joined, picked
from perfkit_core.trace.assembly.draft import RecordedEvents
from perfkit_core.trace.model.collective import TABLE, Collective

_MODULE_PREFIX: Final = "perfkit.module:"
_BACKWARD: Final = "backward"
_NODE: Final = re.compile(r"(.+?)(?:\*(\d{1,6}))?")

_COLLECTIVE_PREFIX: Final = "perfkit.collective:"
_COLLECTIVE_LABEL: Final = re.compile(_COLLECTIVE_PREFIX + r"(\w+):(\d{0,18}):(\w*):(\w*):(\w*):(\d{0,18}):"
                                     r"(host|device)(?::(\d{0,18}):(\d{0,18}):(\d{0,18}))?")  # fmt: skip
_INPUT_PREFIX: Final = "perfkit.input:"
_BITS: Final = re.compile(r"(?:u?int|b?float|complex)(\d{1,4})")
_FEW: Final = 64
"""If at most ``1 / _FEW`` of the rows are replaced, copying the unchanged rows in slices is faster than a mask."""


class ModuleLabel(NamedTuple):
    """A label of a layer."""

    path: str  # the framework's name of the layer; for the model itself, "" or the model's name and a dot
    class_name: str
    backward: bool = False
    nodes: tuple[str, ...] = ()  # names of the autograd nodes that a backward label lists

    @property
    def module(self) -> str:
        """The value of the column ``module``: the path, or the class name of a model without a name."""
        return self.path.rstrip(".") or self.class_name


def module_label(path: str, class_name: str) -> str:
    return f"{_MODULE_PREFIX}{quote(path, safe='')}:{quote(class_name, safe='')}"


def backward_label(path: str, class_name: str, nodes: Iterable[str] = ()) -> str:
    counted = Counter(quote(node, safe="") for node in nodes)
    listed = ",".join(f"{node}*{count}" if count > 1 else node for node, count in counted.items())
    return f"{module_label(path, class_name)}:{_BACKWARD}" + (f":{listed}" if listed else "")


def parse_module_label(name: str) -> ModuleLabel | None:
    """Return the label in an event's name, or None if the name is not a label."""
    if not name.startswith(_MODULE_PREFIX):
        return None
    path, _, rest = name[len(_MODULE_PREFIX) :].partition(":")
    class_name, _, more = rest.partition(":")
    word, _, listed = more.partition(":")
    nodes: list[str] = []
    for item in listed.split(","):
        if match := _NODE.fullmatch(item):
            nodes += [unquote(match[1])] * int(match[2] or 1)
    return ModuleLabel(unquote(path), unquote(class_name), word == _BACKWARD, tuple(nodes))


def collective_label(collective: Collective) -> str:
    fields = [
        collective.name, collective.elements, collective.dtype, collective.group, collective.members,
        collective.group_size, collective.on,
    ]  # fmt: skip
    more = (collective.peer, collective.received, collective.received_rows)
    fields += more if any(field is not None for field in more) else ()
    return _COLLECTIVE_PREFIX + ":".join("" if field is None else re.sub(r"\W", "", str(field)) for field in fields)


def parse_collective_label(name: str) -> Collective | None:
    match = _COLLECTIVE_LABEL.fullmatch(name)
    if not match:
        return None
    kind, elements, dtype, group, members, size, on, *more = match.groups()
    group_size, count, peer, received, rows = (int(number) if number else None for number in (size, elements, *more))
    return Collective(
        kind, group or None, members or None, group_size, count, dtype or None, None, on, peer, None, received, rows
    )


def input_label(loader: object) -> str:
    name = getattr(loader, "__name__", None)
    return _INPUT_PREFIX + quote(name if isinstance(name, str) else type(loader).__name__, safe="<>")


def parse_input_label(name: str) -> str | None:
    """Return the name of the iterable for which ``perfkit.profile`` waits in an event, or None for other events."""
    return unquote(name.removeprefix(_INPUT_PREFIX)) if name.startswith(_INPUT_PREFIX) else None


def with_labels(recorded: RecordedEvents) -> RecordedEvents:
    """Evaluate the labels of collectives, and return the events. The name of a labelled event becomes the canonical
    name of the collective, which is described in a side table. ``bytes`` gets the message size if it is null."""
    columns = recorded.columns
    names = joined(columns["name"])
    names = names if pa.types.is_dictionary(names.type) else names.dictionary_encode()
    values = names.dictionary.to_pylist()
    labels = [parse_collective_label(value or "") for value in values]
    if not any(labels):
        return recorded
    codes = pc.fill_null(names.indices, -1).to_numpy(zero_copy_only=False)
    rows = np.flatnonzero(np.array([*(label is not None for label in labels), False])[codes]).astype(np.int64)
    collectives = [label for code in codes[rows] if (label := labels[code])]
    sizes = np.array([_message_bytes(collective) for collective in collectives], np.int64)
    recorded = with_sizes(recorded, rows, sizes)
    columns = recorded.columns
    plain = [value if label is None else label.name for value, label in zip(values, labels, strict=True)]
    renamed = pa.array(plain, pa.string()).take(names.indices).dictionary_encode()
    recorded = replace(recorded, columns=columns.set_column(columns.schema.get_field_index("name"), "name", renamed))
    return recorded.with_facts(TABLE, TABLE.of_structs(collectives, row=rows))


def with_sizes(recorded: RecordedEvents, rows: IntArray, sizes: IntArray) -> RecordedEvents:
    """Return the events with message sizes in the column ``bytes`` of ``rows`` that have none. Negative sizes are
    unknown."""
    columns = recorded.columns
    if "bytes" not in columns.column_names:
        columns = columns.append_column("bytes", pa.nulls(columns.num_rows, pa.int64()))
    mask = np.zeros(columns.num_rows, np.bool_)
    mask[rows] = True
    values = pc.coalesce(picked(columns["bytes"], rows), pa.array(sizes, mask=sizes < 0))
    return replace(recorded, columns=replaced(columns, "bytes", mask, values))


def replaced(columns: pa.Table, name: str, mask: BoolArray, new: pa.Array) -> pa.Table:
    """Return the table with new values in the masked rows of one column."""
    pieces, row, used = [], 0, 0
    for piece in columns[name].chunks:
        here = mask[row : row + len(piece)]
        count = int(np.count_nonzero(here))
        values = new.slice(used, count)
        row, used = row + len(piece), used + count
        if not count:
            pieces.append(piece)
        elif count * _FEW > len(piece):
            pieces.append(pc.replace_with_mask(piece, pa.array(here), values))
        else:  # few rows are replaced (see ``_FEW``): copy the unchanged rows between them
            parts, begin = [], 0
            for number, index in enumerate(np.flatnonzero(here).tolist()):
                parts += [piece.slice(begin, index - begin), values.slice(number, 1)]
                begin = index + 1
            pieces.append(pa.concat_arrays([*parts, piece.slice(begin)]))
    position = columns.schema.get_field_index(name)
    return columns.set_column(position, name, pa.chunked_array(pieces, columns[name].type))


def _message_bytes(collective: Collective) -> int:
    if collective.elements is None or collective.dtype is None or collective.name == "barrier":
        return -1
    if collective.dtype == "bool" or collective.dtype.startswith("float8"):
        return collective.elements
    bits = _BITS.match(collective.dtype)
    return collective.elements * int(bits[1]) // 8 if bits else -1
