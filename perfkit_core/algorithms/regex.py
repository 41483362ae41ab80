"""Regular expressions that users write. RE2 takes time linear in the text, in bounded memory: none can hang."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from perfkit_core.algorithms.arrays import BoolArray
from perfkit_core.errors import UsageError

LONGEST = 10_000
"""Characters of a pattern: more is a mistake."""


def matches(values: Sequence[str | None], pattern: str) -> BoolArray:
    """True where a text contains a match, shape (len(values),); null never does. Raises UsageError."""
    if len(pattern) > LONGEST:
        raise UsageError(f"a regular expression of {len(pattern)} characters", f"at most {LONGEST} are allowed")
    try:
        hits = pc.match_substring_regex(pa.array(values, pa.string()), pattern)
    except pa.ArrowInvalid as error:
        raise UsageError(f"not a regular expression: {pattern!r} ({error})", "RE2 syntax, see --help") from None
    found: BoolArray = np.asarray(pc.fill_null(hits, False).to_numpy(zero_copy_only=False), np.bool_)
    return found
