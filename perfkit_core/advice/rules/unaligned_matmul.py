"""Rule 24, unaligned-matmul: a dimension of half-precision products is not a multiple of 8.
Detected: shapes and strides with rows that do not start at multiples of 16 bytes. Kernels whose names show 16-byte
reads do not count.
Predicted: the step time with padded products."""

from __future__ import annotations

import re
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from perfkit_core.advice import matrix_products, operators
from perfkit_core.advice.rule_input import Candidate, RuleInput, assume
from perfkit_core.base.algorithms.arrays import IntArray
from perfkit_core.base.language.messages import message
from perfkit_core.replay.transforms import Quantity, Scale
from perfkit_core.trace.model.trace import Trace

MULTIPLE: Final = 8
"""Half-precision numbers per 16-byte read of tensor cores (NVIDIA, Matrix Multiplication Background)."""
_KERNEL_FACTOR: Final = Quantity(
    0.4, 0.7, 1.0,
    message("estimate: tensor cores read 16 bytes in one access only if rows start at multiples of 16 bytes"),
)  # fmt: skip
_PRODUCTS: Final = ("matmul", "linear", "matmul_grad", "linear_grad")
"""Products with parameters, whose sizes can be chosen. Sizes of batched products are lengths of the data."""
_ALIGN: Final = re.compile(r"align(\d{1,18})")
_STRIDES: Final = r'"Input Strides" *: *(?P<strides>\[\[.*?\]\])'


def find(facts: RuleInput) -> list[Candidate]:
    facts.need_device()
    facts.need("shapes", message("ask the profiler for shapes (record --shapes)"))
    trace, kernels = facts.trace, matrix_products.matrix_kernels(facts.trace)
    at = np.flatnonzero((kernels.type == matrix_products.HALF) & (kernels.operator >= 0) & ~kernels.convolves)
    at = at[trace.rows("op_name", *_PRODUCTS)[kernels.operator[at]]]
    rows, operator, names = kernels.row[at], kernels.operator[at], trace.codes("name")
    # the number of values that a kernel reads in one access, for example 8 if its name has "align8"; 0 if unknown
    matches = [_ALIGN.search(name) for name in names.values]
    reads = names.lookup(np.array([int(match[1]) if match else 0 for match in matches], np.int64), 0)[rows]
    sizes = np.where(
        (reads > 0) & (reads < MULTIPLE), operators.per_row(trace, operator, unaligned, 0), _by_rows(trace, operator)
    )
    sizes = np.where(reads >= MULTIPLE, 0, sizes)
    rows, sizes = rows[sizes > 0], sizes[sizes > 0]
    spent = facts.covered_ns(rows)
    if not facts.exceeds(spent, facts.thresholds.multiply_share):
        return []
    # the dimension whose kernels take most time
    distinct, at = np.unique(sizes, return_inverse=True)
    size = int(distinct[np.bincount(at, trace.ints("dur_ns")[rows]).argmax()])
    padded = -(-size // MULTIPLE) * MULTIPLE
    return [Candidate(
        message(
            "Half-precision products with unaligned dimensions take {time}. The costliest dimension, {size}, is not a "
            "multiple of {multiple}.",
            size=size, multiple=MULTIPLE, time=facts.of_step(spent),
        ),
        evidence={**facts.part("kernel", spent), "dimension": size, "padded": padded, "kernels": len(rows)},
        rows=rows,
        transforms=(Scale(rows, _KERNEL_FACTOR, below=False, host=False),),
        ceiling_ns=round(spent),
        preconditions=(message("the inputs have half precision"), message("no kernel name shows 16-byte reads")),
        assumptions=assume(kernel_factor=_KERNEL_FACTOR),
        risks=(message("Remove the padding from the result: padded classes would change the loss."),),
        fill={"size": str(size), "padded": str(padded)},
    )]  # fmt: skip


def _by_rows(trace: Trace, operator: IntArray) -> IntArray:
    """Return the result of :func:`unaligned_rows` for each operator; 0 if no shapes were recorded."""
    strides = pa.array([], pa.string()).dictionary_encode()
    if len(operator):
        texts = pc.extract_regex(trace.pick("args", operator), _STRIDES)
        strides = pc.struct_field(texts, "strides").dictionary_encode()
    shapes = trace.codes("shapes")
    width = len(strides.dictionary) + 1
    stride = strides.indices.fill_null(width - 1).to_numpy(zero_copy_only=False).astype(np.int64)
    pairs, at = np.unique(shapes.codes[operator].astype(np.int64) * width + stride, return_inverse=True)
    sizes = np.zeros(len(pairs), np.int64)
    for index, pair in enumerate(pairs.tolist()):
        if pair >= 0:  # a negative number means that no shapes were recorded
            text = strides.dictionary[pair % width].as_py() if pair % width < width - 1 else None
            recorded = None if text is None else operators.shapes_of(text)
            sizes[index] = unaligned_rows(operators.shapes_of(shapes.values[pair // width]), recorded)
    return sizes[at]


def unaligned_rows(shapes: operators.Shapes, strides: operators.Shapes | None) -> int:
    """Return the length of the longest unaligned row of the two factors and the product; 0 if there is none. A row is
    unaligned if its length is above 8 and not a multiple of 8. Without strides, rows are assumed to be contiguous."""
    factors = _matrices(shapes)
    sizes = [shapes[at][-1] for at in factors]
    if strides is not None and len(strides) == len(shapes):
        lengths = []
        for at in factors:  # distance between rows in memory; 0 if neither rows nor columns are contiguous
            across, along = strides[at][-2:]
            lengths.append(across if along == 1 else along if across == 1 else 0)
        sizes = [*lengths, *sizes[-1:]]
    return _largest(sizes)


def unaligned(shapes: operators.Shapes) -> int:
    """Return the largest of the three matrix sizes that is above 8 and not a multiple of 8; 0 if there is none."""
    return _largest([size for at in _matrices(shapes) for size in shapes[at][-2:]])


def _matrices(shapes: operators.Shapes) -> list[int]:
    """Return the positions of the two factors among the inputs. A bias precedes the factors."""
    return [at for at, shape in enumerate(shapes) if len(shape) >= 2][-2:]


def _largest(sizes: list[int]) -> int:
    return max((size for size in sizes if size > MULTIPLE and size % MULTIPLE), default=0)
