"""Distinct texts, numbered as they come: what dictionary columns are made of."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

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

    def columns(self, parts: Sequence[Codes | None], compact: bool) -> list[pa.DictionaryArray | None]:
        """Numbers as dictionary arrays, which share a dictionary; of only those texts that occur where ``compact``."""
        if not compact or all(codes is None for codes in parts):
            return [None if codes is None else _encoded(codes, self._texts()) for codes in parts]
        used = np.zeros(len(self._numbers) + 1, np.bool_)
        for codes in parts:
            if codes is not None:
                used[codes] = True
        used[-1] = False
        if used[:-1].all():
            return self.columns(parts, compact=False)
        place = np.cumsum(used, dtype=np.int32) - 1
        place[-1] = -1
        held = [text for text, wanted in zip(self._numbers, used.tolist(), strict=False) if wanted]
        texts = pa.array(held, pa.string())
        return [None if codes is None else _encoded(place[codes], texts) for codes in parts]

    def _texts(self) -> pa.Array:
        """All of them."""
        if len(self._held) != len(self._numbers):
            self._held = pa.array(self._numbers, pa.string())
        return self._held


def _encoded(codes: Codes, texts: pa.Array) -> pa.DictionaryArray:
    known = codes >= 0
    indices = [None if known.all() else pa.py_buffer(np.packbits(known, bitorder="little")), pa.py_buffer(codes)]
    return pa.DictionaryArray.from_arrays(pa.Array.from_buffers(pa.int32(), len(codes), indices), texts)
