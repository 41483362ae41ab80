"""The NVTX ranges that torch writes under ``torch.autograd.profiler.emit_nvtx``.

The text of a range is ``name[, seq = N][, op_id = N][, sizes = [[..]]][, input_op_ids = [..]]``. Operators and ranges
of ``record_function`` have the same form, and the text does not say which of them it is."""

from __future__ import annotations

import functools
import re
from typing import Final

from perfkit_core.plugins.frameworks import RangeMeaning
from perfkit_core.readers.chrome.dialect import Label
from perfkit_core.trace.model import schema
from perfkit_torch.dialect import named_label
from perfkit_torch.operator_names import has_namespace

_DETAILS: Final = re.compile(
    r"(?:, seq = (?P<sequence>-?\d{1,18}))?(?:, op_id = \d+)?(?:, sizes = (?P<sizes>\[[\d\[\], ]*\]))?"
    r"(?:, input_op_ids = \[[^\n]*\])?$"
)
_DETAIL: Final = re.compile(r", (?:seq|op_id|sizes|input_op_ids) = ")
_OPERATOR: Final = re.compile(r"[a-z_]\w*::[\w.]+$")
"""An operator of any library. Names of ``record_function`` such as ``FSDP::pre_forward`` begin with a capital."""


def range_meaning(text: str) -> RangeMeaning | None:
    """Return the event of a range that torch wrote, or None if torch did not write it."""
    first = _DETAIL.search(text)
    details = _DETAILS.match(text, first.start()) if first else None
    name = text[: first.start()] if first and details else text
    label = _label(name, details is not None)
    if label is None:
        return None
    sequence, sizes = details.group("sequence", "sizes") if details else (None, None)
    number = int(sequence) if sequence and int(sequence) >= 0 else None
    shapes = (sizes or "").replace(" ", "")
    return RangeMeaning(name, label.kind, label.phase, label.step, number, shapes if shapes not in ("", "[]") else None)


@functools.lru_cache(maxsize=65536)
def _label(name: str, detailed: bool) -> Label | None:
    label = named_label("cpu_op", name)
    if label.kind != schema.OPERATOR or label.phase or has_namespace(name):
        return label
    if not detailed:
        return None
    return label if _OPERATOR.match(name) else named_label("user_annotation", name)
