"""Names of the events by which an adapter marks collectives that its framework does not record itself.

``perfkit.collective:all_reduce:65536:float32:0:1c291ca3:2:host``: name, elements, type, group, members, size of the
group, where it runs; empty where unknown. No character of it could damage a trace file.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from perfkit_core.arrays import joined
from perfkit_core.assemble import Recorded
from perfkit_core.collectives import Collective, describe

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
