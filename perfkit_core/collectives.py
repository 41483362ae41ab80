"""What one collective is, in every framework's words: the description that adapters add to events.

An adapter writes it into the ``args`` of an event under the key :data:`KEY`; the analyses of communication read it
there. The size of the message is in the column ``bytes``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from perfkit_core.arrays import picked
from perfkit_core.trace import IntArray

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
