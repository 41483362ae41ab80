"""Describes the collectives among recorded events as they come, while their texts are at hand."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from perfkit_core.collectives import with_description
from perfkit_core.sources.dialect import Dialect
from perfkit_core.sources.origins import Numbers, Origins
from perfkit_core.sources.portion import NULL
from perfkit_core.sources.rows import Rows
from perfkit_core.sources.vocabulary import Vocabulary

_REMEMBERED: Final = 1 << 8
_TEXTS: Final = ("shapes", "dtypes")


class Descriptions:
    """Adds to ``args`` what an event communicates (:mod:`perfkit_core.collectives`), and to ``bytes`` how much."""

    def __init__(self, dialect: Dialect, origins: Origins, vocabularies: Mapping[str, Vocabulary]) -> None:
        self._dialect, self._origins, self._vocabularies = dialect, origins, vocabularies
        self._wanted = Numbers(np.bool_)
        self._seen: dict[tuple[str | None, ...], tuple[str | None, int]] = {}

    def add(self, part: Rows) -> None:
        """Describe what is there to describe among these rows. What was recorded stays."""
        for origin in self._origins.known(len(self._wanted)):
            self._wanted.append(self._dialect.communicates(origin.name or "", origin.kind or ""))
        at = np.flatnonzero(self._wanted.array()[part.origin])
        if not len(at):
            return
        texts = (self._texts(part, column, at) for column in _TEXTS)
        names = (self._origins.name(number) for number in part.origin[at].tolist())
        found = [self._of(*key) for key in zip(names, part.arguments(at), *texts, strict=True)]
        part.replace(at, [text for text, _ in found])
        self._measure(part, at, np.array([size for _, size in found], np.int64))

    def _texts(self, part: Rows, column: str, at: npt.NDArray[np.int64]) -> list[str | None]:
        codes = part.texts.get(column)
        if codes is None:
            return [None] * len(at)
        known = self._vocabularies[column].texts()
        found: list[str | None] = known.take(pa.array(codes[at], mask=codes[at] < 0)).to_pylist()
        return found

    def _of(self, *key: Any) -> tuple[str | None, int]:
        """The ``args`` of a row that is described, and its size, -1 where that is unknown."""
        if key not in self._seen:
            if len(self._seen) >= _REMEMBERED:
                self._seen.clear()
            collective, size = self._dialect.described(*key)
            self._seen[key] = with_description(key[1], collective), size
        return self._seen[key]

    def _measure(self, part: Rows, at: npt.NDArray[np.int64], sizes: npt.NDArray[np.int64]) -> None:
        if (sizes < 0).all():
            return
        column = part.integers.setdefault("bytes", np.full(part.count, NULL, np.int64))
        unknown = (column[at] == NULL) & (sizes >= 0)
        column[at[unknown]] = sizes[unknown]
