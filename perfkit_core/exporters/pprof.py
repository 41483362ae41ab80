"""Gzipped pprof profiles: distinct stacks with calls, host time, device time and allocated bytes.

pprof merges functions with equal names and system names, even from different files. The system name therefore contains
the file. The thread is a label of each sample, with the rank if there are several. ``-tagroot=thread`` turns the label
into a frame. Fields have the numbers of proto/profile.proto in github.com/google/pprof.

Each sample has all frames of its stack, so very deep stacks are cut. The samples are written in portions, because
concatenated messages are one message."""

from __future__ import annotations

import functools
import gzip
from collections.abc import Iterator
from typing import Any, BinaryIO, Final

import numpy as np

from perfkit_core.base.algorithms.trees import Tree
from perfkit_core.errors import UsageError
from perfkit_core.exporters import BYTES, CALLS, CPU, DEVICE
from perfkit_core.exporters.stacks import Frame, call_paths, cut_to, frame, weigh
from perfkit_core.plugins.contracts import ExportOptions
from perfkit_core.trace.model.schema import PYTHON
from perfkit_core.trace.model.trace import Trace

_INT64, _UINT64, _STRING, _MESSAGE = 3, 4, 9, 11
_REPEATED: Final = 3
_PACKAGE: Final = "perftools.profiles"
_MAX_FRAMES: Final = 1 << 25
"""Largest number of frames of all samples together. Deep stacks are cut to stay below it."""
_PORTION_FRAMES: Final = 1 << 20

_FIELDS: Final[dict[str, dict[str, tuple[int, int | str]]]] = {
    "ValueType": {"type": (1, _INT64), "unit": (2, _INT64)},
    "Label": {"key": (1, _INT64), "str": (2, _INT64)},
    "Sample": {"location_id*": (1, _UINT64), "value*": (2, _INT64), "label*": (3, "Label")},
    "Line": {"function_id": (1, _UINT64), "line": (2, _INT64)},
    "Location": {"id": (1, _UINT64), "line*": (4, "Line")},
    "Function": {
        "id": (1, _UINT64), "name": (2, _INT64), "system_name": (3, _INT64), "filename": (4, _INT64),
        "start_line": (5, _INT64),
    },
    "Profile": {
        "sample_type*": (1, "ValueType"), "sample*": (2, "Sample"), "location*": (4, "Location"),
        "function*": (5, "Function"), "string_table*": (6, _STRING), "time_nanos": (9, _INT64),
        "duration_nanos": (10, _INT64), "comment*": (13, _INT64), "default_sample_type": (14, _INT64),
    },
}  # fmt: skip
"""The fields of each message: name → (number, type or message). A name that ends with ``*`` is a repeated field."""


@functools.cache
def profile_class() -> Any:
    """Return the class of the Profile message. Raises UsageError if protobuf is not installed."""
    try:
        from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
    except ImportError:
        raise UsageError("the format pprof requires protobuf", 'run pip install "perfkit[pprof]"') from None
    file = descriptor_pb2.FileDescriptorProto(name="perfkit/profile.proto", package=_PACKAGE, syntax="proto3")
    for message, fields in _FIELDS.items():
        declared = file.message_type.add(name=message)
        for name, (number, kind) in fields.items():
            label = _REPEATED if name.endswith("*") else 1
            field = declared.field.add(name=name.rstrip("*"), number=number, label=label)
            if isinstance(kind, str):
                field.type, field.type_name = _MESSAGE, f".{_PACKAGE}.{kind}"
            else:
                field.type = kind
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.Profile"))


SAMPLE_TYPES: Final = ((CALLS, "calls", "count"), (BYTES, "allocated", "bytes"), (DEVICE, "device", "nanoseconds"),
                       (CPU, "host_self", "nanoseconds"))  # fmt: skip
"""The values of a sample: (weight, name, unit)."""


def write(trace: Trace, file: BinaryIO, options: ExportOptions) -> str:
    """Write the stacks. Return a reason if there are none, a note if some were cut, else "". Raises UsageError if
    protobuf is not installed."""
    # The name of a Python event contains the first line of its function. Other frames contain the line of the call.
    names = trace.codes("name")
    begins = {names.values[code] for code in np.unique(names.codes[trace.rows("kind", PYTHON)]).tolist()}
    builder = _Builder(profile_class()(), begins)
    tree, labels = call_paths(trace)
    weights = [weigh(trace, weight) for weight, _, _ in SAMPLE_TYPES]
    weighted = np.logical_or.reduce([tree.exclusive(values) != 0 for values in weights])
    frames = np.array([len(label) for label in labels], np.int64)[tree.key]
    tree, cut = cut_to(_MAX_FRAMES, tree, frames, weighted)
    values = np.stack([tree.exclusive(values) for values in weights], axis=1)
    builder.head(trace, bool(values[:, -1].any()))
    empty = True
    with gzip.GzipFile(fileobj=file, mode="wb", compresslevel=6, mtime=0, filename="") as compressed:
        for portion in builder.samples(tree, labels, values.tolist()):
            compressed.write(portion)
            empty = False
        compressed.write(builder.profile.SerializeToString(deterministic=True))
    return "no stack has a weight" if empty else cut


class _Builder:
    """Builder of a Profile message. Each distinct text, function and location is stored once. ``begins`` contains the
    names of Python events. The line in such a name is the first line of the function, not the line of a call."""

    def __init__(self, profile: Any, begins: set[str]) -> None:
        self.profile = profile
        self._begins = begins
        self._texts: dict[str, int] = {}
        self._functions: dict[tuple[str, str | None, int], int] = {}
        self._locations: dict[Frame, int] = {}
        self._text("")

    def head(self, trace: Trace, host: bool) -> None:
        for _, name, unit in SAMPLE_TYPES:
            self.profile.sample_type.add(type=self._text(name), unit=self._text(unit))
        self.profile.default_sample_type = self._text("host_self" if host else "device")
        start, end = trace.meta.window_ns or (0, 0)
        self.profile.duration_nanos = end - start
        if trace.meta.clock == "epoch":
            self.profile.time_nanos = start
        self.profile.comment.append(self._text(f"{trace.meta.framework}: {trace.meta.source}"))

    def samples(self, tree: Tree, paths: list[tuple[str, ...]], values: list[list[int]]) -> Iterator[bytes]:
        """Yield messages with a sample for each stack with a nonzero value. They refer to texts and locations of
        ``profile``, which is complete at the end."""
        portion, frame_count = profile_class()(), 0
        labels = [[self._location(frame(text)) for text in label[::-1]] for label in paths]
        parent, label = tree.parent.tolist(), tree.key.tolist()
        for node, value in enumerate(values):
            if any(value):
                sample, frames = portion.sample.add(value=value), []
                while parent[node] >= 0:
                    frames += labels[label[node]]
                    node = parent[node]
                # Leave out the thread, unless it is the only frame: pprof drops samples without frames.
                inside = labels[label[node]][:-1]
                frames += inside if inside or frames else labels[label[node]]
                sample.location_id.extend(frames)
                sample.label.add(key=self._text("thread"), str=self._text(paths[label[node]][0]))
                frame_count += len(frames)
                if frame_count >= _PORTION_FRAMES:
                    yield portion.SerializeToString(deterministic=True)
                    portion, frame_count = profile_class()(), 0
        if portion.sample:
            yield portion.SerializeToString(deterministic=True)

    def _text(self, text: str) -> int:
        if text not in self._texts:
            self._texts[text] = len(self._texts)
            self.profile.string_table.append(text.encode("utf-8", "replace").decode())
        return self._texts[text]

    def _location(self, part: Frame) -> int:
        if part not in self._locations:
            number = self._locations[part] = len(self._locations) + 1
            first = part.line or 0 if part.text in self._begins else 0
            key = (part.name, part.file, first)
            if key not in self._functions:
                self._functions[key] = len(self._functions) + 1
                file_and_line = f"{part.file}({first})" if first else part.file
                self.profile.function.add(
                    id=self._functions[key],
                    name=self._text(part.name),
                    system_name=self._text(f"{file_and_line}: {part.name}" if file_and_line else part.name),
                    filename=self._text(part.file or ""),
                    start_line=first,
                )
            self.profile.location.add(id=number).line.add(function_id=self._functions[key], line=part.line or 0)
        return self._locations[part]
