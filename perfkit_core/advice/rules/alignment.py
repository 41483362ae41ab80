"""Rule 24: a dimension of half precision products is not a multiple of 8."""

from __future__ import annotations

import re
from typing import Final

import numpy as np

from perfkit_core.advice.facts import Facts
from perfkit_core.advice.model import Assumption, Candidate
from perfkit_core.advice.rules import kernel_words
from perfkit_core.advice.rules.device_time import covered_ns, ms, of_step
from perfkit_core.advice.rules.kernel_words import Multiplying, multiplying
from perfkit_core.advice.rules.recorded_shapes import Shapes, per_row
from perfkit_core.plugins.contracts import Rule
from perfkit_core.replay.edits.durations import Scale
from perfkit_core.replay.quantity import Quantity
from perfkit_core.trace import IntArray

MULTIPLE: Final = 8
"""Half precision numbers that tensor cores read at once: 16 bytes (NVIDIA, Matrix Multiplication Background)."""
PADDED: Final = Quantity(
    0.4, 0.7, 1.0, "prior: tensor cores read 16 bytes at once only where rows begin at multiples of 16"
)
"""Factor of the kernels once the dimension is padded."""
_PRODUCTS: Final = ("matmul", "bmm", "linear", "matmul_grad", "bmm_grad", "linear_grad")
_ALIGN: Final = re.compile(r"align(\d+)")


def find(facts: Facts) -> list[Candidate]:
    """Products of half precision whose rows do not begin at multiples of 16 bytes take a share of each step."""
    facts.need_device()
    facts.need("shapes", "ask the profiler for shapes (record --shapes)")
    found = multiplying(facts.trace)
    at, sizes = _unaligned(facts, found)
    rows = found.row[at]
    taken = covered_ns(facts, rows)
    if taken <= facts.thresholds.multiply_share * facts.step_ns:
        return []
    size = _costliest(facts, rows, sizes)
    padded = -(-size // MULTIPLE) * MULTIPLE
    return [
        Candidate(
            f"16-bit products with a dimension of {size}, no multiple of {MULTIPLE}: {ms(taken)} of {of_step(facts)}",
            evidence={
                "kernel_ns": round(taken), "kernel_ratio": taken / max(facts.step_ns, 1), "step_ns": facts.step_ns,
                "dimension": size, "padded": padded, "kernels": len(rows),
            },
            rows=rows,
            edits=(Scale(rows, PADDED, below=False, host=False),),
            ceiling_ns=round(taken),
            preconditions=("the inputs are of half precision", "no kernel's name says that it reads 16 bytes at once"),
            assumptions=(Assumption("kernel_factor", PADDED, PADDED.source),),
            risks=("what is padded must be left out of the result (a loss over more classes is another loss)",),
            fill={"size": str(size), "padded": str(padded)},
        )
    ]  # fmt: skip


def _unaligned(facts: Facts, found: Multiplying) -> tuple[IntArray, IntArray]:
    """Positions among the kernels, and the dimension of each that is no multiple."""
    trace = facts.trace
    products = trace.rows("op_name", *_PRODUCTS)
    at = np.flatnonzero((found.type == kernel_words.HALF) & (found.operator >= 0) & ~found.convolves)
    at = at[products[found.operator[at]]]
    reads = _aligned_reads(facts, found.row[at])
    operators = found.operator[at]
    inner = per_row(trace, operators, unaligned_inner, 0)
    size = np.where((reads > 0) & (reads < MULTIPLE), per_row(trace, operators, unaligned, 0), inner)
    size = np.where(reads >= MULTIPLE, 0, size)
    return at[size > 0], size[size > 0]


def _aligned_reads(facts: Facts, rows: IntArray) -> IntArray:
    """How many numbers a kernel reads at once, as far as its name says (``align8``); 0 elsewhere."""
    names = facts.trace.codes("name")
    told = [_ALIGN.search(name) for name in names.values]
    table = np.array([int(match[1]) if match else 0 for match in told], np.int64)
    found: IntArray = names.lookup(table, 0)[rows]
    return found


def unaligned_inner(shapes: Shapes) -> int:
    """The largest length of rows of the factors (…×K and K×N: K, N) that is more than 8 and no multiple of it, else
    0."""
    return _largest([size for matrix in _matrices(shapes) for size in matrix[-1:]])


def unaligned(shapes: Shapes) -> int:
    """As :func:`unaligned_inner`, of all three dimensions: factors may be read across."""
    return _largest([size for matrix in _matrices(shapes) for size in matrix[-2:]])


def _matrices(shapes: Shapes) -> Shapes:
    return [shape for shape in shapes if len(shape) >= 2][-2:]


def _largest(sizes: list[int]) -> int:
    return max((size for size in sizes if size > MULTIPLE and size % MULTIPLE), default=0)


def _costliest(facts: Facts, rows: IntArray, sizes: IntArray) -> int:
    """The dimension whose kernels take most."""
    distinct, at = np.unique(sizes, return_inverse=True)
    total = np.bincount(at, facts.trace.ints("dur_ns")[rows])
    return int(distinct[total.argmax()])


RULES: Final = (Rule("unaligned-matmul", 24, 1, "Pad matrices to multiples of 8", find),)
