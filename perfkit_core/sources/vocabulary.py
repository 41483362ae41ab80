"""Distinct texts, numbered as they come: what dictionary columns are made of."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Codes = npt.NDArray[np.int32]


class Vocabulary:
    """Numbers of texts; -1 is a missing one."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def number(self, text: str | None) -> int:
        """The number of a text, a new one when it has none yet."""
        return -1 if text is None else self._numbers.setdefault(text, len(self._numbers))

    def numbers(self, texts: Iterable[str | None]) -> Codes:
        """The numbers of texts, shape (texts,)."""
        return np.fromiter(map(self.number, texts), np.int32)

    def column(self, codes: Codes) -> pa.DictionaryArray:
        """A dictionary column that holds only the texts that occur."""
        used = np.zeros(len(self._numbers) + 1, np.bool_)
        used[codes] = True
        used[-1] = False
        place = np.cumsum(used, dtype=np.int32) - 1
        place[-1] = -1
        values = [text for text, wanted in zip(self._numbers, used.tolist(), strict=False) if wanted]
        return pa.DictionaryArray.from_arrays(_nullable(place[codes]), pa.array(values, pa.string()))


def _nullable(codes: Codes) -> pa.Array:
    return pa.array(codes, mask=codes < 0) if len(codes) and codes.min() < 0 else pa.array(codes)
