"""What one collective is, in every framework's words: the description that adapters add to events.

An adapter writes it into the ``args`` of an event under the key :data:`KEY`; the analyses of communication read it
there. The size of the message is in the column ``bytes``.

Names of the events by which an adapter marks collectives that its framework does not record itself.

``perfkit.collective:all_reduce:65536:float32:0:1c291ca3:2:host``: name, elements, type, group, members, size of the
group, where it runs; empty where unknown. No character of it could damage a trace file.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from perfkit_core.algorithms.arrays import IntArray, joined, picked
from perfkit_core.assembly.assemble import Recorded

KEY: Final = "collective"
HOST: Final = "host"
DEVICE: Final = "device"
_FEW: Final = 64
"""One row in so many."""


class Collective(msgspec.Struct, frozen=True, omit_defaults=True):
    """A collective, as far as the framework tells; None where it does not.

    ``name`` is canonical (all_reduce, …), ``group`` names the group of processes, ``members`` tells groups of one name
    apart, ``group_size`` counts its ranks. ``elements`` of ``dtype`` make the message. ``sequence`` numbers the
    collectives of a group, the same on all its ranks. ``on``: whether the host event itself communicates (``host``) or
    work that it launches does (``device``).
    """

    name: str
    group: str | None = None
    members: str | None = None
    group_size: int | None = None
    elements: int | None = None
    dtype: str | None = None
    sequence: int | None = None
    on: str = DEVICE


class _Args(msgspec.Struct):
    collective: Collective | None = None


_DECODER: Final = msgspec.json.Decoder(_Args)


def described(texts: Sequence[str | None]) -> list[Collective | None]:
    """The descriptions in some ``args``; None where there is none."""
    return [_of(text) for text in texts]


def _of(text: str | None) -> Collective | None:
    if text is None or f'"{KEY}"' not in text:
        return None
    try:
        return _DECODER.decode(text).collective
    except (msgspec.DecodeError, UnicodeDecodeError):  # the framework itself recorded something under this key
        return None


def describe(columns: pa.Table, rows: IntArray, found: Sequence[Collective | None], sizes: IntArray) -> pa.Table:
    """The columns with descriptions added to ``args`` of some rows, and message sizes (-1: unknown) to ``bytes``.

    What was recorded stays: sizes fill only what is null. ``rows`` ascend.
    """
    for name, kind in (("args", pa.string()), ("bytes", pa.int64())):
        if name not in columns.column_names:
            columns = columns.append_column(name, pa.nulls(columns.num_rows, kind))
    mask = np.zeros(columns.num_rows, np.bool_)
    mask[rows] = True
    args = picked(columns["args"], rows).to_pylist()
    texts = [with_description(text, one) for text, one in zip(args, found, strict=True)]
    columns = _replaced(columns, "args", mask, pa.array(texts, pa.string()))
    told = picked(columns["bytes"], rows)
    filled = pc.coalesce(told, pa.array(sizes, mask=sizes < 0))
    return _replaced(columns, "bytes", mask, filled)


def with_description(text: str | None, one: Collective | None) -> str | None:
    """The ``args`` of an event with its description, as they are where it has none or they are no object."""
    if one is None or (text is not None and not text.startswith("{")):
        return text
    added = msgspec.json.encode({KEY: one}).decode()
    return added if text in (None, "{}") else f"{text[:-1]},{added[1:]}"


def _replaced(
    columns: pa.Table, name: str, mask: np.ndarray[tuple[int], np.dtype[np.bool_]], new: pa.Array
) -> pa.Table:
    """With other values where the mask is true; a piece of the column without any stays as it is."""
    pieces, row, used = [], 0, 0
    for piece in columns[name].chunks:
        here = mask[row : row + len(piece)]
        count = int(np.count_nonzero(here))
        pieces.append(_put(piece, here, new.slice(used, count)) if count else piece)
        row, used = row + len(piece), used + count
    position = columns.schema.get_field_index(name)
    return columns.set_column(position, name, pa.chunked_array(pieces, columns[name].type))


def _put(piece: pa.Array, at: np.ndarray[tuple[int], np.dtype[np.bool_]], new: pa.Array) -> pa.Array:
    """Other values where ``at`` is true. Of few, the stretches between them are copied whole."""
    if len(new) * _FEW > len(piece):
        return pc.replace_with_mask(piece, pa.array(at), new)
    parts, row = [], 0
    for number, place in enumerate(np.flatnonzero(at).tolist()):
        parts += [piece.slice(row, place - row), new.slice(number, 1)]
        row = place + 1
    return pa.concat_arrays([*parts, piece.slice(row)])


PREFIX: Final = "perfkit.collective:"
_FORM: Final = re.compile(PREFIX + r"(\w+):(\d*):(\w*):(\w*):(\w*):(\d*):(host|device)")
_BITS: Final = re.compile(r"(?:u?int|b?float|complex)(\d+)")


def encode(one: Collective) -> str:
    """The name of the event."""
    fields = (one.name, one.elements, one.dtype, one.group, one.members, one.group_size, one.on)
    return PREFIX + ":".join("" if field is None else re.sub(r"\W", "", str(field)) for field in fields)


def decode(name: str) -> Collective | None:
    """What a name says; None where it is no label of ours."""
    match = _FORM.fullmatch(name)
    if not match:
        return None
    kind, elements, dtype, group, members, size, on = match.groups()
    return Collective(kind, group or None, members or None, _number(size), _number(elements), dtype or None, on=on)


def with_labels(recorded: Recorded) -> Recorded:
    """The recorded events with each label described, sized, and named as the collective that it marks."""
    columns = recorded.columns
    names = joined(columns["name"])
    names = names if pa.types.is_dictionary(names.type) else names.dictionary_encode()
    found = [decode(value or "") for value in names.dictionary.to_pylist()]
    if not any(found):
        return recorded
    codes = pc.fill_null(names.indices, -1).to_numpy(zero_copy_only=False)
    rows = np.flatnonzero(np.array([*(one is not None for one in found), False])[codes]).astype(np.int64)
    each = [found[code] for code in codes[rows]]
    columns = describe(columns, rows, each, np.array([_bytes(one) for one in each], np.int64))
    plain = [value if one is None else one.name for value, one in zip(names.dictionary.to_pylist(), found, strict=True)]
    renamed = pa.array(plain, pa.string()).take(names.indices).dictionary_encode()
    return replace(recorded, columns=columns.set_column(columns.schema.get_field_index("name"), "name", renamed))


def _number(text: str) -> int | None:
    return int(text) if text else None


def _bytes(one: Collective | None) -> int:
    """-1 where the type is unknown."""
    if one is None or one.elements is None or one.dtype is None or one.name == "barrier":
        return -1
    if one.dtype == "bool" or one.dtype.startswith("float8"):
        return one.elements
    bits = _BITS.match(one.dtype)
    return one.elements * int(bits[1]) // 8 if bits else -1
