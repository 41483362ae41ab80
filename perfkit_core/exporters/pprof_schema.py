"""The messages of pprof's profile.proto, as far as perfkit writes them, declared at run time.

Field numbers: github.com/google/pprof, proto/profile.proto (package perftools.profiles). Other fields stay unset.
"""

from __future__ import annotations

import functools
from typing import Any, Final

from perfkit_core.errors import UsageError

_INT64, _UINT64, _STRING, _MESSAGE = 3, 4, 9, 11
_REPEATED: Final = 3
_PACKAGE: Final = "perftools.profiles"

# message → field → (number, type, name of the message type, repeated)
_FIELDS: Final[dict[str, dict[str, tuple[int, int, str | None, bool]]]] = {
    "ValueType": {"type": (1, _INT64, None, False), "unit": (2, _INT64, None, False)},
    "Label": {"key": (1, _INT64, None, False), "str": (2, _INT64, None, False)},
    "Sample": {
        "location_id": (1, _UINT64, None, True),
        "value": (2, _INT64, None, True),
        "label": (3, _MESSAGE, "Label", True),
    },
    "Line": {"function_id": (1, _UINT64, None, False), "line": (2, _INT64, None, False)},
    "Location": {"id": (1, _UINT64, None, False), "line": (4, _MESSAGE, "Line", True)},
    "Function": {
        "id": (1, _UINT64, None, False),
        "name": (2, _INT64, None, False),
        "system_name": (3, _INT64, None, False),
        "filename": (4, _INT64, None, False),
        "start_line": (5, _INT64, None, False),
    },
    "Profile": {
        "sample_type": (1, _MESSAGE, "ValueType", True),
        "sample": (2, _MESSAGE, "Sample", True),
        "location": (4, _MESSAGE, "Location", True),
        "function": (5, _MESSAGE, "Function", True),
        "string_table": (6, _STRING, None, True),
        "time_nanos": (9, _INT64, None, False),
        "duration_nanos": (10, _INT64, None, False),
        "comment": (13, _INT64, None, True),
        "default_sample_type": (14, _INT64, None, False),
    },
}


@functools.cache
def profile_class() -> Any:
    """The class of a Profile message. Raises UsageError where protobuf is not installed."""
    try:
        from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
    except ImportError:
        raise UsageError("pprof files need protobuf", 'pip install "perfkit[pprof]"') from None
    file = descriptor_pb2.FileDescriptorProto(name="perfkit/profile.proto", package=_PACKAGE, syntax="proto3")
    for message, fields in _FIELDS.items():
        _declare(file.message_type.add(name=message), fields)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.Profile"))


def _declare(message: Any, fields: dict[str, tuple[int, int, str | None, bool]]) -> None:
    for name, (number, kind, of, repeated) in fields.items():
        field = message.field.add(name=name, number=number, type=kind, label=_REPEATED if repeated else 1)
        if of is not None:
            field.type_name = f".{_PACKAGE}.{of}"
