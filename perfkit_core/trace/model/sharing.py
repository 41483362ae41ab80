"""What of a run's metadata an exported file contains. A recording also says where it was made: the host, folders, and
whatever a job wrote into the header of a trace file, such as names of users, job numbers and tokens.

Only what is listed here is exported. A new key of a header is left out until perfkit has a use for it.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from perfkit_core.base.language.messages import Message, Text
from perfkit_core.base.system.machine import host_digest
from perfkit_core.trace.model import architecture
from perfkit_core.trace.model.meta import COUNT_KEYS, DTYPE, HOST, INSTRUCTIONS, WORK_KEYS, Device, Finding, TraceMeta
from perfkit_core.trace.model.trace import Trace

_COUNTS: Final = frozenset(name for names in (*WORK_KEYS.values(), *COUNT_KEYS.values()) for name in names)
_EXPORTED_KEYS: Final = {HOST: (*_COUNTS, INSTRUCTIONS), "nsys": ("version", "schema_version")}
"""Keys of ``TraceMeta.extra`` whose values are dictionaries: the keys in them that are exported."""
KNOWN_KEYS: Final = _COUNTS.union(_EXPORTED_KEYS, *_EXPORTED_KEYS.values(), (DTYPE,))
"""Keys of ``TraceMeta.extra`` that perfkit looks up."""
_VERSION: Final = re.compile(r"\w{0,40}_version|schemaVersion|span_ind(?:e)?x|version")
_NUMBER: Final = re.compile(r'\s*"?\d{1,15}(?:\.\d{1,15}){0,3}"?\s*')
_WORD: Final = re.compile(r"[a-z]{1,8}\d{0,4}(?:_[a-z]{1,4}\d{1,2})?")
"""A type such as ``bfloat16``, or a flag of a processor such as ``avx512_bf16``."""
_WORKER: Final = re.compile(r"^(?:host_.+(?=pid_\d+_)|.+(?=_\d+\.\d+\.pt\.trace\.json))")
"""The host name at the start of file names that profilers choose themselves."""
_FOLDERS: Final = re.compile(
    r"(?<![\w.:/\\~-])(?:[A-Za-z]:[/\\]|~?[/\\]|\w+://)(?:[^\s/\\:,;'\"()\[\]{}]+[/\\])*(?=[^\s/\\])"
)


def shareable_trace(trace: Trace) -> Trace:
    """Return a trace with the metadata and the findings of an exported file. The events stay as they are."""
    quality = tuple(map(shareable_finding, trace.quality))
    return trace.with_quality(quality).replaced_meta(shareable(trace.meta))


def shareable(meta: TraceMeta) -> TraceMeta:
    """Return metadata for an exported file.

    - ``hostname`` becomes a digest, which is equal for two runs of one host.
    - ``source`` keeps only the file name. Messages of findings are changed by :func:`shareable_finding`.
    - ``extra`` keeps the layers of annotated models, the default type, and numbers: versions, batch sizes, cores and
      threads. All other keys of a file's header are left out.
    - ``devices`` and ``options`` keep numbers; other properties may identify a machine.
    """
    return msgspec.structs.replace(
        meta,
        source=file_name(meta.source),
        hostname=meta.hostname and digest(meta.hostname),
        extra=_shareable_extra(meta),
        devices=tuple(map(_shareable_device, meta.devices)),
        options={key: value for key, value in meta.options.items() if isinstance(value, (bool, int, float))},
    )


def digest(hostname: str) -> str:
    """Return the digest of a host name. A digest remains as it is, so that a file can be exported again."""
    return hostname if re.fullmatch(r"host[0-9a-f]{10}", hostname) else host_digest(hostname)


def _shareable_extra(meta: TraceMeta) -> dict[str, Any]:
    exported: dict[str, Any] = {}
    for key, value in meta.extra.items():
        if key in _EXPORTED_KEYS and isinstance(value, Mapping):
            names = (name for name in value if name in _EXPORTED_KEYS[key] and _harmless(name, value[name]))
            exported[key] = {name: value[name] for name in names}
        elif _harmless(key, value):
            exported[key] = value
    return exported | architecture.to_extra(architecture.from_meta(meta))


def _harmless(key: str, value: Any) -> bool:
    """Return whether a key may be exported: its value is what the key promises, a number or a fixed word."""
    words = value if isinstance(value, (list, tuple)) else [value]
    if key in (DTYPE, INSTRUCTIONS):
        return all(isinstance(word, str) and _WORD.fullmatch(word) for word in words)
    promised = key in _COUNTS or _VERSION.fullmatch(key)
    return bool(promised) and (isinstance(value, (bool, int, float)) or _NUMBER.fullmatch(str(value)) is not None)


def _shareable_device(device: Device) -> Device:
    numbers = {key: value for key, value in device.properties.items() if _plain(value)}
    named = {"name": device.properties["name"]} if "name" in device.properties else {}
    return msgspec.structs.replace(device, properties={**named, **numbers})


def _plain(value: Any) -> bool:
    return all(map(_plain, value)) if isinstance(value, (list, tuple)) else isinstance(value, (bool, int, float))


def file_name(source: str) -> str:
    """Return the last part of a path, without the host name that profilers write at its start."""
    name = re.split(r"[/\\]", source.rstrip("/\\"))[-1]
    return _WORKER.sub("host", name)


def shareable_finding(finding: Finding) -> Finding:
    """Return a finding whose message contains no folders. Paths keep their last part."""
    return msgspec.structs.replace(finding, text=_without_folders(finding.text))


def _without_folders(text: Text) -> Text:
    if isinstance(text, Message):
        values = {key: _value_without_folders(value) for key, value in text.values.items()}
        return dataclasses.replace(text, values=values)
    return _FOLDERS.sub("", text)


def _value_without_folders(value: Any) -> Any:
    if isinstance(value, (str, Message)):
        return _without_folders(value)
    return tuple(map(_value_without_folders, value)) if isinstance(value, tuple) else value
