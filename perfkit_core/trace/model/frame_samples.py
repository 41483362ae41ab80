"""Samples of the Python frames of a training. They show which line runs where the profiler records no frames."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec
import numpy as np
import pyarrow as pa

from perfkit_core.base.algorithms.arrays import TEXT, IntArray
from perfkit_core.trace.model.schema import Column, Int64
from perfkit_core.trace.model.side_table import RANK, SideTable, rank_cells


class FrameSamples(msgspec.Struct, frozen=True):
    """The frames of the thread that runs the steps, at regular times.

    - ``stacks``: the distinct stacks, as in the column ``stack``: innermost frame first, separated by ``;``
    - ``after_us``: times of the samples in µs after ``start_ns``, ascending
    - ``stack``: position in ``stacks`` of each sample
    - ``start_ns``: time in ns since 1970
    """

    stacks: tuple[str, ...] = ()
    after_us: tuple[int, ...] = ()
    stack: tuple[int, ...] = ()
    start_ns: Int64 = 0

    def __post_init__(self) -> None:
        """Raise ValueError if a sample has no stack, or a time that does not fit in 64 bits."""
        if len(self.after_us) != len(self.stack) or not all(0 <= at < len(self.stacks) for at in self.stack):
            raise ValueError("samples of frames have no stack")
        if any(abs(self.start_ns + 1000 * after) >= 1 << 63 for after in self.after_us):
            raise ValueError("the times of samples do not fit in 64 bits")

    @property
    def at_ns(self) -> IntArray:
        return np.array(self.after_us, np.int64) * 1000 + self.start_ns


def to_table(samples: Mapping[str, FrameSamples]) -> pa.Table:
    """Return the samples of several ranks, which are texts, "-" for an unknown rank."""
    tables = [
        TABLE.table(
            {
                "rank": pa.array(rank_cells([rank] * len(of_rank.stack)), pa.int32()),
                "at_ns": of_rank.at_ns,
                "stack": pa.DictionaryArray.from_arrays(pa.array(of_rank.stack, pa.int32()), pa.array(of_rank.stacks)),
            }
        )
        for rank, of_rank in samples.items()
        if of_rank.stack
    ]
    return _joined(tables) if tables else TABLE.table({})


def of_table(table: pa.Table) -> dict[str, FrameSamples]:
    """Return the samples by rank, a text, "-" for an unknown rank."""
    samples = {}
    for rank in table["rank"].unique().to_pylist():
        rows = pa.compute.is_null(table["rank"]) if rank is None else pa.compute.equal(table["rank"], rank)
        of_rank = table.filter(pa.compute.fill_null(rows, False)).combine_chunks()
        at_ns, stack = of_rank["at_ns"].to_numpy(), of_rank["stack"].unify_dictionaries().chunk(0)
        start_ns = int(at_ns[0])
        after_us = tuple(((at_ns - start_ns) // 1000).tolist())
        names = tuple(stack.dictionary.to_pylist())
        samples["-" if rank is None else str(rank)] = FrameSamples(
            names, after_us, tuple(stack.indices.to_pylist()), start_ns
        )
    return samples


def _joined(tables: Sequence[pa.Table]) -> pa.Table:
    return pa.concat_tables(tables).unify_dictionaries().sort_by([("rank", "ascending"), ("at_ns", "ascending")])


TABLE: Final = SideTable(
    "frame_samples",
    "samples of the Python frames of the thread that runs the steps, by rank and time",
    (
        RANK,
        Column("at_ns", pa.int64(), False, "time in ns since 1970"),
        Column("stack", TEXT, False, "Python frames, innermost first, separated by ';'"),
    ),
    join=_joined,
)
