"""Columns of the event table from the tables of a profile protobuf, one function a table."""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa

from perfkit_core.schema import CPU
from perfkit_paddle import labels, names, pb_args
from perfkit_paddle.pb_table import Table

_RUNTIME_TYPE: Final = names.EVENT_TYPES.index("CudaRuntime")


def _span(table: Table) -> labels.Columns:
    start = table["start_ns"]
    duration = table["end_ns"] - start
    return {"start_ns": pa.array(start), "dur_ns": pa.array(np.maximum(duration, 0, out=duration))}


def _thread(table: Table) -> labels.Columns:
    cpu = labels.constant(CPU, len(table))
    return {"pid": table.integers("pid"), "tid": table.integers("tid"), "device": cpu}


def host(table: Table) -> labels.Columns:
    return labels.labelled(table.texts("name"), table["type"]) | _span(table) | _thread(table)


def runtime(table: Table) -> labels.Columns:
    types = np.full(len(table), _RUNTIME_TYPE, np.int64)
    own = {"correlation": table.integers("correlation"), "args": pb_args.runtime(table)}
    return labels.labelled(table.texts("name"), types) | _span(table) | _thread(table) | own


def device(table: Table) -> labels.Columns:
    numbers, row = np.unique(table["device"], return_inverse=True)
    own = {
        "device": labels.spread([f"{names.DEVICE_BACKEND}:{number}" for number in numbers], row),
        "stream": table.integers("stream"),
        "correlation": table.integers("correlation"),
        "bytes": table.integers("bytes"),
    }
    return labels.labelled(table.texts("name"), table["type"]) | _span(table) | own | pb_args.device(table)


def memory(table: Table) -> labels.Columns:
    place = table.texts("place")
    own = {
        "start_ns": pa.array(table["start_ns"]),
        "dur_ns": pa.array(np.zeros(len(table), np.int64)),
        "device": places(place),
        "bytes": table.integers("bytes"),
        "address": table.integers("address"),
        "total_bytes": table.integers("allocated"),
        "args": pb_args.memory(table),
    }
    return labels.memory_labelled(table["type"]) | _thread(table) | own


def places(place: pa.DictionaryArray) -> pa.DictionaryArray:
    """Values of the device column for the places of memory events; null is the host."""
    devices = [names.place_device(text) for text in place.dictionary.to_pylist()] + [CPU]
    codes = place.indices.fill_null(len(devices) - 1).to_numpy()
    return labels.spread(devices, codes)
