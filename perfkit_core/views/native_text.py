"""Texts as the frameworks' own tables print them."""

from __future__ import annotations

from typing import Any, Final

import msgspec
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

_NOTHING: Final = "[]"
_CUT: Final = r"^(?P<short>.+?<.*>)\(.*\)"
"""A kernel's name with its template arguments, then its parameters."""


def shapes_as_printed(shapes: pd.Categorical) -> pd.Categorical:
    """Input shapes where an argument that is a list of tensors, and unknown shapes, are ``[]``."""
    short = [_without_lists(text) for text in shapes.categories]
    return _renamed(np.where(shapes.codes < 0, len(short), shapes.codes), [*short, _NOTHING])


def short_kernel_names(names: pd.Categorical) -> pd.Categorical:
    """Kernels without the parameters after their template arguments."""
    found = pc.extract_regex(pa.array(list(names.categories), pa.string()), _CUT)
    short = pc.coalesce(pc.struct_field(found, "short"), pa.array(list(names.categories), pa.string()))
    return _renamed(names.codes, short.to_pylist())


def _renamed(codes: Any, names: list[str]) -> pd.Categorical:
    """Codes into names of which several may be equal."""
    values = list(dict.fromkeys(names))
    position = {text: code for code, text in enumerate(values)}
    table = np.array([*(position[text] for text in names), -1], np.int64)
    return pd.Categorical.from_codes(table[codes], categories=pd.Index(values, dtype=object))


def _without_lists(text: str) -> str:
    try:
        arguments = msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text
    if not isinstance(arguments, list):
        return text
    return msgspec.json.encode([[] if _is_nested(shape) else shape for shape in arguments]).decode()


def _is_nested(shape: Any) -> bool:
    return isinstance(shape, list) and any(isinstance(size, list) for size in shape)
