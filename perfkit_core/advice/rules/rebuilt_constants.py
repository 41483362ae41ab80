"""Rule 42, rebuilt-constants: every step computes the same tensors again, from numbers alone.
Detected: operators that create a range of numbers or a filled tensor of a recorded size, and the following operators on
tensors of this size. The same operators occur in every step.
Predicted: the step time if these tensors are computed once."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow.compute as pc

from perfkit_core.advice.operators import matching, names_of, operator_order, shapes_of
from perfkit_core.advice.rule_input import Candidate, NotEvaluableError, RuleInput
from perfkit_core.base.algorithms import nesting
from perfkit_core.base.algorithms.arrays import IntArray
from perfkit_core.base.language.messages import message
from perfkit_core.replay.transforms import Case, InCases, Remove
from perfkit_core.trace.model.schema import BACKWARD, DATALOADER, OPTIMIZER
from perfkit_core.trace.model.trace import Trace

_CREATES: Final = ("arange", "fill")
_ALLOCATES: Final = re.compile(r"(?:^|::)(?:empty|resize_)$")
_SIZE: Final = r'"Concrete Inputs":\s*\["?"?,?\s*"?\[(?P<size>[\d, ]*)\]"'
"""The size is the first or the second argument."""
_KEEPS: Final = frozenset(
    {
        "add", "subtract", "multiply", "divide", "pow", "sqrt", "rsqrt", "exp", "log", "negative", "reciprocal", "sin",
        "cos", "cumsum", "cumprod", "triangular", "compare", "logical", "where", "cast", "clip", "reshape", "transpose",
        "expand", "concat", "slice", "stack", "square", "scale", "contiguous", "alias", "copy", "one_hot", "outer",
        "pad", "floor", "abs",
    }
)  # fmt: skip
"""Operators that a computation of constants may call."""


def find(facts: RuleInput) -> list[Candidate]:
    facts.need_steps()
    facts.need("shapes", message("record shapes (record_shapes=True)"))
    if len(facts.steps) < 2:  # what one step computes from numbers may be its data, such as the lengths of requests
        raise NotEvaluableError(message("only one step was recorded, so constants cannot be distinguished from data"))
    trace, order = facts.trace, operator_order(facts.trace)
    chosen = facts.in_steps & ~trace.rows("phase", BACKWARD, OPTIMIZER, DATALOADER)
    row = order.row[chosen[order.row]]
    canonical, shapes = trace.codes("op_name"), trace.codes("shapes")
    names = [canonical.values[code] if code >= 0 else "" for code in canonical.codes[row].tolist()]
    step, sizes = trace.ints("step")[row], _Sizes(shapes.values)
    sizes_of = created_elements(trace, row[trace.rows("op_name", *_CREATES)[row]])
    chains: list[list[int]] = []
    chain: list[int] = []
    chain_sizes: set[int] = set()
    for at, name in enumerate(names):
        inputs = sizes.of(int(shapes.codes[row[at]]))
        created = sizes_of.get(int(row[at])) if name in _CREATES and not inputs else None
        begins = created is not None
        goes_on = bool(chain) and step[at] == step[chain[-1]] and (begins or name in _KEEPS)
        if goes_on and inputs <= chain_sizes | {1}:
            chain.append(at)
        else:
            chains.append(chain)
            chain, chain_sizes = ([at], set()) if begins else ([], set())
        chain_sizes |= set() if created is None else {created}
    chains.append(chain)
    chosen_rows = _in_every_step(facts, row, chains)
    spent = facts.mean_ns(chosen_rows)
    if not facts.exceeds(spent, facts.thresholds.constants_share):
        return []
    return [Candidate(
        message(
            "Each step computes tensors again that do not depend on its data ({operators:list}). This takes {time}.",
            operators=names_of(trace, chosen_rows)[:3], time=facts.of_step(spent),
        ),
        evidence={"operators": len(chosen_rows), **facts.part("constants", spent)},
        rows=chosen_rows,
        transforms=(InCases(Remove(chosen_rows), (Case.SHORT, Case.LIKELY)),),
        ceiling_ns=round(spent),
        preconditions=(
            message("the tensors are computed only from Python numbers, by the same operators in every step"),
        ),
        vetoes=(message("random numbers, and filled tensors that are written to later"),),
        assumptions=(),
        risks=(message("The tensors stay in memory. They must be computed again if their size changes."),),
    )]  # fmt: skip


def created_elements(trace: Trace, rows: IntArray) -> dict[int, int]:
    """Return the number of elements of the tensor that each operator creates, by row. The operator allocates memory
    inside itself; the arguments of the last allocation state the size. Rows without such arguments are left out."""
    creating = np.full(len(trace), -1, np.int64)
    creating[rows] = rows
    creator = nesting.first_on_path(trace.ints("parent"), creating)
    inside = np.flatnonzero(matching(trace, "name", _ALLOCATES.search) & (creator >= 0))
    sizes = pc.struct_field(pc.extract_regex(trace.pick("args", inside), _SIZE), "size").to_pylist()
    return {
        int(row): math.prod(map(int, filter(None, size.split(","))))
        for row, size in zip(creator[inside].tolist(), sizes, strict=True)
        if size is not None
    }


class _Sizes:
    """The numbers of elements of the inputs of operators, for each distinct text of shapes."""

    def __init__(self, texts: Sequence[str]) -> None:
        self._texts = texts
        self._by_code: dict[int, set[int]] = {}

    def of(self, code: int) -> set[int]:
        if code < 0:
            return set()
        if code not in self._by_code:
            inputs = shapes_of(self._texts[code])
            self._by_code[code] = {int(np.prod(shape)) for shape in inputs if shape}
        return self._by_code[code]


def _in_every_step(facts: RuleInput, row: IntArray, chains: list[list[int]]) -> IntArray:
    """Return the rows of the chains of at least two operators whose operators occur in every step."""
    trace, names = facts.trace, facts.trace.codes("name")
    steps: dict[tuple[int, ...], set[int]] = {}
    for chain in chains:
        if len(chain) > 1:
            key = tuple(names.codes[row[chain]].tolist())
            steps.setdefault(key, set()).add(int(trace.ints("step")[row[chain[0]]]))
    number = len(np.unique(facts.steps.number))
    repeated = {key for key, step_numbers in steps.items() if len(step_numbers) == number}
    long = [chain for chain in chains if len(chain) > 1]
    rows = [at for chain in long if tuple(names.codes[row[chain]].tolist()) in repeated for at in chain]
    return row[np.array(rows, np.int64)] if rows else np.empty(0, np.int64)
