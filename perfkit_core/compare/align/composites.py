"""Operators that one framework divides and another does not: biases, attention, losses, counters of norms.

Between frameworks, the parts count as one operator, the *composite*, where the sequences of operators show it:

- The parts stand for an operator that only the other run has (:data:`_WHOLES`).
- An ``add`` directly after a product is its bias if the aligned sequence of the other run has no counterpart of it. A
  residual connection has one.
- An ``add`` directly before a norm, with the same number in the graph of gradients, is no part of this graph: it counts
  the calls.

Gradients run in reverse order, so a backward pass is read from its end. Reshapes between parts belong to the composite.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from perfkit_core.base.algorithms import groupby
from perfkit_core.base.algorithms.arrays import BoolArray, IntArray
from perfkit_core.base.operators.names import GRADIENT_SUFFIX, family, is_canonical
from perfkit_core.compare.align.layer_match import aligned
from perfkit_core.compare.align.operator_owner import Composites, Owners, merged, owners
from perfkit_core.trace.model.schema import BACKWARD, DATALOADER, OPTIMIZER
from perfkit_core.trace.model.trace import Trace
from perfkit_core.views.select import threads
from perfkit_core.views.steps.step_rows import step_rows

PRODUCTS: Final = ("matmul", "linear", "bmm")
"""Names of one operator, the product of matrices."""
_INSIDE: Final = "(add|subtract|multiply|divide|scale|where|cast|dropout)*"
_WHOLES: Final = {
    "attention": f"(multiply|divide|scale)?(matmul){_INSIDE}(softmax){_INSIDE}(matmul)",
    "cross_entropy": "(log_softmax)(nll_loss)",
}
"""Composite → a regular expression of the names of its parts."""
_AFTER: Final = {"matmul": "add", "conv": "add", "conv_transpose": "add", "cross_entropy": "mean"}
"""Composite → the operator after it that may be a part of it: a bias, or the mean of a loss over the samples."""
_COUNTER, _COUNTED = "add", "batch_norm"
_STORED: Final = "accumulate_grad"
_NO_WORK: Final = ("layout", "metadata")
"""Families of operators that only look at their inputs otherwise."""
_FIRST: Final = 0x100
"""The sequence of the operators is a string. This is the character of the first name."""
_OTHER: Final = "?"
"""Character of operators without a canonical name."""
_MOST_KINDS: Final = 8
"""Maximum number of kinds of steps of a run, the most frequent ones, in which composites are searched."""
_BLOCK: Final = 1024
"""Maximum number of operators of each run in one alignment; longer runs are aligned in parts."""


@dataclass(frozen=True, slots=True)
class _Sequence:
    """The operators of a step on the way forward, or those of its backward pass in reverse order."""

    rows: IntArray
    at: IntArray  # The positions in ``rows`` of the operators that compute.
    text: str  # One character for each of ``at``.


class _Characters(dict[str, str]):
    """Name of an operator → its character."""

    def __missing__(self, name: str) -> str:
        return self.setdefault(name, chr(_FIRST + len(self)) if is_canonical(name) else _OTHER)

    def pattern(self, names: str) -> re.Pattern[str]:
        return re.compile(re.sub(r"\w+", lambda name: self[name[0]], names))


def composed(base: Trace, other: Trace) -> tuple[Owners, Owners]:
    """Return the operators of two runs: with composites if the runs come from different frameworks."""
    traces, operators = (base, other), (owners(base), owners(other))
    differ = base.meta.framework != other.meta.framework
    names = [{*of_run.name.values} for of_run in operators]
    if not differ and not any((name in names[0]) != (name in names[1]) for name in _WHOLES):
        return operators
    characters = _Characters()
    sides = [_sequences(trace, characters) for trace in traces]
    composites = [_counters(trace) if differ else {} for trace in traces]
    for suffix in ("", GRADIENT_SUFFIX):
        kinds = [Counter(sequence.text for sequence in side[suffix]).most_common(_MOST_KINDS) for side in sides]
        for side, rows, mine, theirs in zip(sides, composites, kinds, reversed(kinds), strict=True):
            parts = {text: [*_composites(text, theirs[0][0], characters, differ)] for text, _ in mine if theirs}
            for sequence in side[suffix]:
                for name, first, last in parts.get(sequence.text, ()):
                    of_composite = sequence.rows[sequence.at[first] : sequence.at[last] + 1]
                    rows[int(of_composite[0])] = name + suffix, of_composite
    products = PRODUCTS if differ else ()
    synonyms = {name + suffix: PRODUCTS[0] + suffix for name in products for suffix in ("", GRADIENT_SUFFIX)}
    return merged(base, composites[0], synonyms), merged(other, composites[1], synonyms)


def _counters(trace: Trace) -> Composites:
    """Return the norms with counters of their calls. Operators that have no gradient have the number of the next one
    that has."""
    operators, sequence = owners(trace), trace.ints("sequence")
    rows = np.flatnonzero(operators.counted & trace.operators)
    rows = rows[np.lexsort((trace.ints("start_ns")[rows], threads(trace).code[rows]))]
    counter, norm = rows[:-1], rows[1:]
    counts = operators.name.rows(_COUNTER)[counter] & operators.name.rows(_COUNTED)[norm]
    counts &= (sequence[norm] >= 0) & (sequence[counter] == sequence[norm])
    pairs = np.column_stack([norm, counter])[counts]
    return {int(pair[0]): (_COUNTED, pair) for pair in pairs}


def _sequences(trace: Trace, characters: _Characters) -> dict[str, list[_Sequence]]:
    """Return the operators of each step and rank on the way forward (""), and of its backward pass ("_grad")."""
    operators, phase = owners(trace), trace.codes("phase")
    chosen = operators.counted & trace.operators & ~phase.rows(OPTIMIZER, DATALOADER) & ~operators.name.rows(_STORED)
    chosen[[rows[1] for _, rows in _counters(trace).values()]] = False
    chosen &= (trace.ints("step") >= 0) | (len(step_rows(trace)) == 0)
    rows = np.flatnonzero(chosen)
    backward, time = phase.rows(BACKWARD)[rows], trace.ints("start_ns")[rows]
    code, first = groupby.distinct([backward, trace.ints("step")[rows], trace.ints("rank")[rows]], len(rows))
    order = np.lexsort((np.where(backward, -time, time), code))

    texts = np.full((2, len(operators.name.values)), _OTHER, object)
    computes = np.ones(len(operators.name.values), np.bool_)
    for number, name in enumerate(operators.name.values):
        bare = name.removesuffix(GRADIENT_SUFFIX)
        computes[number] = family(name) not in _NO_WORK
        texts[:, number] = characters[name], characters[bare] if bare != name else _OTHER
    names = operators.name.codes[rows]
    text, computes = texts[backward.astype(np.int64), names], computes[names]
    sequences: dict[str, list[_Sequence]] = {"": [], GRADIENT_SUFFIX: []}
    for part in np.split(order, np.cumsum(np.bincount(code, minlength=len(first)))[:-1]) if len(rows) else ():
        at = np.flatnonzero(computes[part])
        sequence = _Sequence(rows[part], at, "".join(text[part[at]]))
        sequences[GRADIENT_SUFFIX if backward[part[0]] else ""].append(sequence)
    return sequences


def _composites(mine: str, theirs: str, characters: _Characters, differ: bool) -> Iterator[tuple[str, int, int]]:
    """Yield the composites of a sequence, if the other run has ``theirs``: name, and the first and the last part.
    ``differ``: the frameworks differ."""
    names = {character: name for name, character in characters.items()}
    (mine, places), (theirs, _) = _with_wholes(mine, theirs, characters), _with_wholes(theirs, mine, characters)
    after = {characters[name]: characters[part] for name, part in _AFTER.items() if differ}
    lonely = ~_matched(mine, theirs, "".join(after.values()))
    for at, character in enumerate(mine):
        first, last = places[at]
        part = after.get(character, "")
        end = at + 1
        while end < len(mine) and mine[end] == part:
            end += 1
        if lonely[at + 1 : end].any():  # Of several additions, the first one adds the bias.
            last = places[at + 1][1]
        if last > first:
            yield names[character], first, last


def _with_wholes(mine: str, theirs: str, characters: _Characters) -> tuple[str, list[tuple[int, int]]]:
    """Replace the parts of operators that only the other run has. Return for each character its first and last part."""
    places = [(at, at) for at in range(len(mine))]
    for name, parts in _WHOLES.items():
        whole = characters[name]
        if whole in theirs and whole not in mine:
            pattern = characters.pattern(parts)
            for match in [*pattern.finditer(mine)][::-1]:
                start, end = match.span()
                places[start:end] = [(places[start][0], places[end - 1][1])]
            mine = pattern.sub(whole, mine)
    return mine, places


def _matched(mine: str, theirs: str, parts: str) -> BoolArray:
    """Align two sequences, block by block. Return which operators of the first one have a counterpart. Those of
    ``parts`` count half. The same operators have one if the sequences are swapped."""
    texts = sorted((mine, theirs))
    sides = [np.array([*map(ord, text)], np.int64) for text in texts]
    masks = [np.full(len(text), mine == theirs) for text in texts]
    at = [0, 0]
    while mine != theirs and at[0] < len(texts[0]) and at[1] < len(texts[1]):
        a, b = (side[start : start + _BLOCK] for side, start in zip(sides, at, strict=True))
        weight = np.where(a == ord(_OTHER), 0.0, np.where(np.isin(a, [*map(ord, parts)]), 0.5, 1.0))
        pairs, passed = aligned((a[:, None] == b[None, :]) * weight[:, None]), (_BLOCK, _BLOCK)
        if max(len(side) - start for side, start in zip(sides, at, strict=True)) > _BLOCK:  # The end may align later.
            pairs = [pair for pair in pairs if max(pair) < _BLOCK // 2]
            passed = (pairs[-1][0] + 1, pairs[-1][1] + 1) if pairs else (_BLOCK // 2, _BLOCK // 2)
        for mask, start, numbers in zip(masks, at, zip(*pairs, strict=True), strict=False):
            mask[start + np.array(numbers)] = True
        at = [start + count for start, count in zip(at, passed, strict=True)]
    return masks[texts.index(mine)]
