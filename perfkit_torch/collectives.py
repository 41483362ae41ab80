"""Kind, group, message size and peer of the collectives in torch's events.

The message size is the number of bytes that a rank sends or receives, whichever is larger. nccl-tests defines it in the
same way (doc/PERFORMANCE.md). The size follows from one of these:

- The fields of ``record_param_comms`` events. Since torch 2.2, the kernels of a collective have these fields too.
- The shapes of the tensors of ``c10d::`` operators and of ``nccl:`` and ``gloo:`` labels. Older recordings contain them
  if they were made with ``record_shapes``.

The rank at the other end of a send or receive is recorded in ``record_param_comms`` events and their kernels. For other
backends than NCCL, it is an argument of ``c10d::send`` and ``c10d::recv_``: a rank of the group, which is taken for a
rank of the job. What a rank receives in an all_to_all is recorded in the same places."""

from __future__ import annotations

import re
from math import prod
from typing import Any, Final, TypeVar

from perfkit_core.base.system.outside_text import decode_json, whole_number
from perfkit_core.trace.model.collective import DEVICE, HOST, Collective
from perfkit_core.trace.model.schema import COMMUNICATION, KERNEL, OPERATOR

Json = TypeVar("Json", dict[str, Any], list[Any])

_MARKED: Final = re.compile(r"record_param_comms|^c10d::|^(?:gloo|mpi|ucc):|nccl|rccl|xccl|hccl|hcom_", re.IGNORECASE)
_LABEL: Final = re.compile(r"(nccl|gloo|mpi|ucc|xccl|hccl|c10d:):(\w+)")
_OPERATOR: Final = "c10d:"
_KINDS_OF_EVENTS: Final = frozenset({COMMUNICATION, KERNEL, OPERATOR})
_ON_HOST: Final = frozenset({"gloo", "mpi"})
_SENT: Final = "In msg nelems"
_RECEIVED: Final = "Out msg nelems"
_PEERS: Final = ("Dst Rank", "Src Rank")
_POINT_TO_POINT: Final = ("send", "recv")
_WITH_PEER: Final = ("c10d::send", "c10d::recv_")
_PEER_ARGUMENT, _TAG_ARGUMENT = 2, 3
"""Positions of the arguments of the operators _WITH_PEER: tensors, group, other rank, tag."""
_INPUT_IS_SMALLER: Final = frozenset({"all_gather", "gather"})
"""Collectives whose labels record only the input tensor, which is smaller than the message."""
_PATTERNS: Final = {
    name: re.compile(name.replace("_", "_?"), re.IGNORECASE)
    for name in ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "barrier", "reduce",
                 "gather", "scatter", "send", "recv")
}  # fmt: skip
_ELEMENT_BYTES: Final = {
    "float": 4, "double": 8, "half": 2, "bfloat16": 2, "long": 8, "int": 4, "short": 2, "char": 1, "byte": 1, "bool": 1,
    "long int": 8, "long long": 8, "long long int": 8, "short int": 2,
    "signed char": 1, "unsigned char": 1, "complexfloat": 8, "complexdouble": 16, "complexhalf": 4,
    "complex<float>": 8, "complex<double>": 16, "uint16": 2, "uint32": 4, "uint64": 8,
}  # fmt: skip


def communicates(name: str, kind: str) -> bool:
    return kind in _KINDS_OF_EVENTS and _MARKED.search(name) is not None


def described(name: str, args: str | None, shapes: str | None, dtypes: str | None) -> tuple[Collective | None, int]:
    """Return the collective that an event describes (or None), and its message size in bytes (or -1 if unknown)."""
    fields, label = _decoded(args, dict) or {}, _LABEL.match(name)
    native = fields.get("Collective name")
    kind = canonical(native if isinstance(native, str) else label[2] if label else "")
    if kind is None:
        return None, -1
    if "dtype" in fields:
        counts = [count for key in (_SENT, _RECEIVED) if isinstance(count := fields.get(key), int)]
        elements, dtype = max(counts, default=None), _text(fields.get("dtype"))
    else:
        elements, dtype = _tensors(kind, label, shapes, dtypes)
    on = HOST if label and label[1] in _ON_HOST else DEVICE
    details = _details(kind, fields, label, shapes)
    if on == DEVICE and elements is None and "Group size" not in fields and not details:
        return None, -1  # only the name of the event was recorded
    plain = None if dtype is None else dtype.replace("c10::", "").lower()
    element_bytes = 1 if plain and plain.startswith("float8") else _ELEMENT_BYTES.get(plain or "")
    group, description = _text(fields.get("Process Group Name")), _text(fields.get("Process Group Description"))
    collective = Collective(
        name=kind,
        group=f"{group} {description}" if group and description and description != "undefined" else group,
        members=_text(fields.get("Process Group Ranks")),
        group_size=_count(fields.get("Group size"), 1),
        elements=elements,
        dtype=plain,
        sequence=_count(fields.get("Seq"), 0),
        on=on,
        **details,
    )
    if kind == "barrier" or elements is None or element_bytes is None:
        return collective, -1
    return collective, elements * element_bytes


def _details(kind: str, fields: dict[str, Any], label: re.Match[str] | None, shapes: str | None) -> dict[str, int]:
    """Return the recorded fields of :class:`Collective` that only sends, receives and all_to_all have."""
    operator = label is not None and label[1] == _OPERATOR
    details: dict[str, int | None] = {}
    if kind in _POINT_TO_POINT:
        values = fields.get("Concrete Inputs") if label and label[0] in _WITH_PEER else None
        values = values if isinstance(values, list) else []
        peer, tag = (_number(values[at]) if at < len(values) else None for at in (_PEER_ARGUMENT, _TAG_ARGUMENT))
        ranks = (_count(fields.get(key), 0) for key in _PEERS)
        details = {"peer": next((rank for rank in ranks if rank is not None), peer), "tag": tag}
    elif kind == "all_to_all" and "dtype" in fields:
        splits = _sizes(_decoded(_text(fields.get("Out split size")), list))
        details = {name: _count(fields.get(key), 0) for name, key in (("received", _RECEIVED), ("sent", _SENT))}
        details["received_rows"] = sum(splits) if splits else None
    elif kind == "all_to_all" and operator:  # alltoall_base_(output, input, …)
        output, sent = [*map(_sizes, _decoded(shapes, list) or []), None, None][:2]
        if output and sent:
            details = {"received": prod(output), "received_rows": output[0], "sent": prod(sent)}
    return {name: value for name, value in details.items() if value is not None}


def canonical(native: str) -> str | None:
    """Return the name of a collective (all_gather for ``_allgather_base``), or None for calls such as wait."""
    return next((name for name, pattern in _PATTERNS.items() if pattern.search(native)), None)


def _tensors(
    kind: str, label: re.Match[str] | None, shapes: str | None, dtypes: str | None
) -> tuple[int | None, str | None]:
    operator = label is not None and label[1] == _OPERATOR
    if label is None or (kind in _INPUT_IS_SMALLER and not operator):
        return None, None
    arguments = zip(_decoded(shapes, list) or [], _decoded(dtypes, list) or [], strict=False)
    tensors = list(arguments)[: 2 if operator else 1]
    sizes = []
    for shape, dtype in tensors:
        dimensions = _sizes(shape)
        if dimensions and isinstance(dtype, str) and dtype:
            sizes.append(prod(dimensions))
    return (max(sizes), tensors[0][1]) if sizes and len(sizes) == len(tensors) else (None, None)


def _decoded(text: str | None, kind: type[Json]) -> Json | None:
    try:
        value = decode_json(text or "null")
    except ValueError:
        return None
    return value if isinstance(value, kind) else None


def _count(value: Any, least: int) -> int | None:
    return value if isinstance(value, int) and value >= least else None


def _sizes(value: Any) -> list[int] | None:
    return value if isinstance(value, list) and value and all(isinstance(size, int) for size in value) else None


def _number(text: Any) -> int | None:
    return whole_number(text) if isinstance(text, str) else None


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None
