"""Rule 24: a dimension of half precision products is not a multiple of 8."""

from __future__ import annotations

import re
from typing import Final

import numpy as np

from perfkit_core.advice.facts import Facts
from perfkit_core.advice.model import Assumption, Candidate
from perfkit_core.advice.rules import kernel_words
from perfkit_core.advice.rules.device_time import covered_ns
from perfkit_core.advice.rules.kernel_words import Multiplying, multiplying
from perfkit_core.advice.rules.phrases import part_of_step
from perfkit_core.advice.rules.recorded_shapes import Shapes, per_row, per_row_with_strides
from perfkit_core.language import in_english, say
from perfkit_core.plugins.contracts import Rule
from perfkit_core.replay.edits.durations import Scale
from perfkit_core.replay.quantity import Quantity
from perfkit_core.trace import IntArray

MULTIPLE: Final = 8
"""Half precision numbers that tensor cores read at once: 16 bytes (NVIDIA, Matrix Multiplication Background)."""
PADDED: Final = Quantity(
    0.4, 0.7, 1.0, in_english("prior: tensor cores read 16 bytes at once only where rows begin at multiples of 16")
)
"""Factor of the kernels once the dimension is padded."""
_PRODUCTS: Final = ("matmul", "bmm", "linear", "matmul_grad", "bmm_grad", "linear_grad")
_ALIGN: Final = re.compile(r"align(\d+)")


def find(facts: Facts) -> list[Candidate]:
    """Products of half precision whose rows do not begin at multiples of 16 bytes take a share of each step."""
    facts.need_device()
    facts.need("shapes", say("ask the profiler for shapes (record --shapes)"))
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
            say(
                "16-bit products with a dimension of {size}, no multiple of {multiple}: {part}",
                size=size, multiple=MULTIPLE, part=part_of_step(facts, taken),
            ),
            evidence={
                "kernel_ns": round(taken), "kernel_ratio": taken / max(facts.step_ns, 1), "step_ns": facts.step_ns,
                "dimension": size, "padded": padded, "kernels": len(rows),
            },
            rows=rows,
            edits=(Scale(rows, PADDED, below=False, host=False),),
            ceiling_ns=round(taken),
            preconditions=(
                say("the inputs are of half precision"),
                say("no kernel's name says that it reads 16 bytes at once"),
            ),
            assumptions=(Assumption("kernel_factor", PADDED, PADDED.source),),
            risks=(say("what is padded must be left out of the result (a loss over more classes is another loss)"),),
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
    rows = per_row_with_strides(trace, operators, unaligned_rows)
    size = np.where((reads > 0) & (reads < MULTIPLE), per_row(trace, operators, unaligned, 0), rows)
    size = np.where(reads >= MULTIPLE, 0, size)
    return at[size > 0], size[size > 0]


def _aligned_reads(facts: Facts, rows: IntArray) -> IntArray:
    """How many numbers a kernel reads at once, as far as its name says (``align8``); 0 elsewhere."""
    names = facts.trace.codes("name")
    told = [_ALIGN.search(name) for name in names.values]
    table = np.array([int(match[1]) if match else 0 for match in told], np.int64)
    found: IntArray = names.lookup(table, 0)[rows]
    return found


def unaligned_rows(shapes: Shapes, strides: Shapes | None) -> int:
    """The largest length of rows in memory, of the factors and of the product, that is more than 8 and no multiple of
    it, else 0. Without strides rows are taken to lie as the shapes say."""
    factors = _matrices(shapes)
    sizes = [shapes[at][-1] for at in factors]
    if strides is not None and len(strides) == len(shapes):
        sizes = [*(_row(strides[at]) for at in factors), *sizes[-1:]]
    return _largest(sizes)


def unaligned(shapes: Shapes) -> int:
    """As :func:`unaligned_rows`, of all three dimensions: how the factors lie is told by the kernel."""
    return _largest([size for at in _matrices(shapes) for size in shapes[at][-2:]])


def _matrices(shapes: Shapes) -> list[int]:
    """Positions of the two factors among the inputs: a bias goes before them."""
    return [at for at, shape in enumerate(shapes) if len(shape) >= 2][-2:]


def _row(strides: list[int]) -> int:
    """Elements from one row in memory to the next; 0 where neither rows nor columns are dense."""
    across, along = strides[-2:]
    return across if along == 1 else along if across == 1 else 0


def _largest(sizes: list[int]) -> int:
    return max((size for size in sizes if size > MULTIPLE and size % MULTIPLE), default=0)


def _costliest(facts: Facts, rows: IntArray, sizes: IntArray) -> int:
    """The dimension whose kernels take most."""
    distinct, at = np.unique(sizes, return_inverse=True)
    total = np.bincount(at, facts.trace.ints("dur_ns")[rows])
    return int(distinct[total.argmax()])


RULES: Final = (Rule("unaligned-matmul", 24, 1, "Pad matrices to multiples of 8", find),)
