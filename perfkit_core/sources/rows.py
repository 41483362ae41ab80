"""Recorded events on their way into columns: arrays of a stretch of events."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from perfkit_core.sources.portion import ARGUMENT_INTEGERS, ARGUMENT_TEXTS, NULL
from perfkit_core.sources.vocabulary import Codes
from perfkit_core.trace import IntArray

INTEGERS: Final = ("start_ns", "dur_ns", "offset_ns", *ARGUMENT_INTEGERS)
TEXTS: Final = ARGUMENT_TEXTS
"""Columns of recorded events, beside ``args`` and those of their origin."""


@dataclass(slots=True)
class Rows:
    """Events, in the order of the source. ``origin`` are numbers of origins, ``integers`` and ``texts`` (numbers of a
    vocabulary) by column, each of shape (count,); a column that is missing holds nothing. ``args`` are strings, None
    where no event has any; in pieces only where there are more than one array holds."""

    count: int
    origin: Codes
    integers: dict[str, IntArray]
    texts: dict[str, Codes]
    args: pa.Array | pa.ChunkedArray | None

    def put(self, at: npt.NDArray[np.int64], other: Rows) -> None:
        """Place the rows of ``other`` at the positions ``at``, shape (other.count,)."""
        self.origin[at] = other.origin
        for name in INTEGERS:
            if name in self.integers or name in other.integers:
                target = self.integers.setdefault(name, np.full(self.count, NULL, np.int64))
                target[at] = other.integers.get(name, NULL)
        for name in TEXTS:
            if name in self.texts or name in other.texts:
                codes = self.texts.setdefault(name, np.full(self.count, -1, np.int32))
                codes[at] = other.texts.get(name, -1)
        mask = np.zeros(self.count, np.bool_)
        mask[at] = True
        order = np.argsort(at)
        found = pa.nulls(other.count, pa.string()) if other.args is None else other.args.take(pa.array(order))
        held = pa.nulls(self.count, pa.string()) if self.args is None else self.args
        self.args = pc.replace_with_mask(held, pa.array(mask), found)

    def only(self, kept: npt.NDArray[np.bool_]) -> Rows:
        """The rows for which ``kept`` is true."""
        return Rows(
            int(kept.sum()),
            self.origin[kept],
            {name: values[kept] for name, values in self.integers.items()},
            {name: codes[kept] for name, codes in self.texts.items()},
            None if self.args is None else self.args.filter(pa.array(kept)),
        )
