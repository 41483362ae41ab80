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
        self._held = pa.array([], pa.string())

    def number(self, text: str | None) -> int:
        """The number of a text, a new one when it has none yet."""
        return -1 if text is None else self._numbers.setdefault(text, len(self._numbers))

    def numbers(self, texts: Iterable[str | None]) -> Codes:
        """The numbers of texts, shape (texts,)."""
        return np.fromiter(map(self.number, texts), np.int32)

    def texts(self) -> pa.Array:
        """All of them, in the order of their numbers."""
        if len(self._held) != len(self._numbers):
            self._held = pa.array(self._numbers, pa.string())
        return self._held

    def compact(self, codes: Codes, counted: npt.NDArray[np.bool_] | None = None) -> tuple[pa.Array, Codes]:
        """Only the texts that occur, and the codes that index these. ``counted``: which of the codes count; those of
        the others are good for nothing then. All of shape (codes,)."""
        occurs = np.zeros(len(self._numbers) + 1, np.bool_)
        occurs[codes if counted is None else codes[counted]] = True
        occurs[-1] = False
        if occurs[:-1].all():
            return self.texts(), codes
        place = np.cumsum(occurs, dtype=np.int32) - np.int32(1)
        place[-1] = -1
        held = [text for text, wanted in zip(self._numbers, occurs.tolist(), strict=False) if wanted]
        return pa.array(held, pa.string()), place[codes]


def encoded(codes: Codes, texts: pa.Array) -> pa.DictionaryArray:
    """A dictionary column of codes, negative ones null. Shares the memory of ``codes``."""
    known = codes >= 0
    indices = [None if known.all() else pa.py_buffer(np.packbits(known, bitorder="little")), pa.py_buffer(codes)]
    return pa.DictionaryArray.from_arrays(pa.Array.from_buffers(pa.int32(), len(codes), indices), texts)
