"""Iterations of a program whose steps were not recorded, found from what marks an iteration.

The marks, in this order of precedence:

1. updates of an optimizer: an iteration ends with an update,
2. calls of the data loader on the thread that computes: an iteration begins with a batch,
3. backward passes, for programs that update their parameters themselves,
4. ranges that a benchmark repeats after ranges of the same name for its warm-up,
5. labelled ranges and calls of the model that repeat outside of all other ranges.

The layers of a network repeat, too. So operators that repeat without such a mark are iterations of unknown meaning, and
neither ranges inside a forward or backward pass nor ranges with the name of a layer or a collective are marks. There
must be :data:`LEAST` marks, and repeated ranges must cover :data:`LEAST_COVERED` of the time.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from typing import Final

import numpy as np

from perfkit_core.base.algorithms import groupby, intervals, nesting
from perfkit_core.base.algorithms.arrays import BoolArray, IntArray
from perfkit_core.base.language.messages import Message, message
from perfkit_core.trace.assembly.chosen_steps import step_numbers_of
from perfkit_core.trace.model import schema
from perfkit_core.trace.model.schema import PHASES
from perfkit_core.trace.model.trace import Trace
from perfkit_core.views.select import threads
from perfkit_core.views.steps.one_off_work import one_off_work
from perfkit_core.views.steps.step_phases import Segments, clears_gradients, segments

LEAST: Final = 3
"""Minimum number of iterations."""
LEAST_COVERED: Final = 0.6
"""Minimum share of the time between the first and the last event that repeated ranges cover."""
_ALIKE: Final = 0.8
"""Share of the iterations that must be alike for a pattern."""
_MOST_UPDATES: Final = 4
"""Maximum number of updates in an iteration that is found by its operators."""
_WARM_UP: Final = re.compile(r"warm[-_ ]?up", re.IGNORECASE)
_MEASURED: Final = re.compile(r"measured?|measurement|bench(?:mark)?|timed|active", re.IGNORECASE)
_LAYERS: Final = "layer|block|attention|attn|mlp|ffn|experts?|embeddings?|linear|conv|norm|activation|relu|gelu|softmax"
_PART_OF_A_PASS: Final = re.compile(
    rf"(?:(?<![A-Za-z])(?i:{_LAYERS})|{re.sub(r'(^|[|])[a-z]', lambda match: match[0].upper(), _LAYERS)})s?(?![a-z])"
    r"|(?i:(?:pre|post)_?(?:forward|backward)|all_?(?:gather|reduce|to_?all)|reduce_?scatter|broadcast|[nrh]ccl"
    r"|(?<![a-z])(?:send|recv)(?![a-z])|compiled)"
)
"""Names of ranges that repeat within a pass through a network."""
_ONE_PASS: Final = re.compile(r"forward|backward|model|capture|execute", re.IGNORECASE)
"""Names of ranges in which nothing that repeats is an iteration."""
_NUMBER: Final = re.compile(r"\d+(?=\D?$)")


@dataclass(frozen=True, slots=True)
class Periods:
    """The iterations of one rank, ascending. Arrays have shape (iterations,). They overlap if requests do."""

    begin_ns: IntArray
    end_ns: IntArray
    number: IntArray
    basis: str | Message  # what marks an iteration
    first_row: int  # a row of the thread of the marks
    opened: bool  # whether a mark begins the first iteration; else it begins with the first event
    without_update: tuple[tuple[int, int], ...] = ()  # iterations in which no parameter was updated, [begin, end) in ns
    benchmark_ns: tuple[tuple[int, int], ...] = ()  # what a benchmark prepares, [begin, end) in ns


@dataclass(frozen=True, slots=True)
class RankEvents:
    """The host events of one rank."""

    trace: Trace
    rank: int
    of_rank: BoolArray
    phases: Segments

    @classmethod
    def of(cls, trace: Trace, rank: int) -> RankEvents:
        of_rank = trace.host & (trace.ints("rank") == rank)
        return cls(trace, rank, of_rank, segments(trace, of_rank))

    def rows(self, *kinds: str) -> IntArray:
        return np.flatnonzero(self.of_rank & self.trace.rows("kind", *kinds))

    def names(self, rows: IntArray) -> list[str]:
        names = self.trace.codes("name")
        return [names.values[code] for code in names.codes[rows]]

    def in_phase(self, phase: str) -> IntArray:
        """Return the indices of the segments of a phase, by start."""
        at = np.flatnonzero(self.phases.phase == PHASES.index(phase))
        return at[np.argsort(self.phases.start_ns[at], kind="stable")]

    def computing(self) -> IntArray:
        """Return the rows of the operators outside data loaders."""
        operators = self.of_rank & self.trace.rows("kind", *schema.OPERATOR_KINDS)
        return np.flatnonzero(operators & ~self.trace.rows("phase", schema.DATALOADER))

    def span(self) -> tuple[int, int]:
        """Return the start of the first and the end of the last range or operator, in ns."""
        rows = self.rows(*(schema.NESTED_KINDS - {schema.RUNTIME, schema.SYNC, schema.PYTHON}))
        return int(self.trace.ints("start_ns")[rows].min()), int(self.trace.end_ns[rows].max())


def inferred_periods(trace: Trace, rank: int) -> Periods | Message:
    """Return the iterations of a rank (-1: unknown), or the reason why there are none."""
    events = RankEvents.of(trace, rank)
    if not len(events.rows(*schema.NESTED_KINDS - {schema.RUNTIME, schema.SYNC})):
        return message("neither operators nor ranges of the host were recorded")
    for find in (_by_optimizer, _by_loader, _by_backward, _by_benchmark, _by_range):
        periods = find(events)
        if periods is not None:
            return periods
    return _why_none(events)


def alike_updates(trace: Trace, rank: int) -> int:
    """Return the number of iterations of a rank that end with an update, 0 if their operators do not repeat."""
    events = RankEvents.of(trace, rank)
    periods = _by_optimizer(events)
    if periods is None:
        return 0
    count = np.diff(np.searchsorted(trace.ints("start_ns")[events.computing()], periods.end_ns), prepend=0)
    alike = np.abs(count - np.median(count)) <= (1 - _ALIKE) * np.median(count)
    return len(count) if alike.mean() >= _ALIKE else 0


def _by_optimizer(events: RankEvents) -> Periods | None:
    """Return iterations that end with an update. If the data loader runs on the same thread, it shows which batches
    belong to an update: with accumulated gradients several, in a validation none."""
    trace, phases = events.trace, events.phases
    updates = events.in_phase(schema.OPTIMIZER)
    first_root = phases.first_root[updates]
    updates, first_root = updates[keep := ~clears_gradients(trace)[first_root]], first_root[keep]
    spans = trace.rows("kind", schema.OPTIMIZER)[first_root]
    basis: str | Message = message("operators that update parameters")
    if spans.any():
        names = events.names(first_root)
        counts = Counter(name for name, span in zip(names, spans.tolist(), strict=True) if span)
        basis = next(name for name in counts if counts[name] >= 0.9 * max(counts.values()))
        keep = spans & np.array([name == basis for name in names], np.bool_)
        updates, first_root = updates[keep], first_root[keep]
    updates, first_root = _one_a_pass(events, updates, first_root)
    if len(updates) < LEAST:
        return None
    begin, end, without_update, opened = _batches(events, phases.end_ns[updates], first_root)
    if len(end) < LEAST:
        return None
    return Periods(begin, end, np.arange(len(end)), basis, int(first_root[0]), opened, without_update)


def _one_a_pass(events: RankEvents, marks: IntArray, roots: IntArray) -> tuple[IntArray, IntArray]:
    """Return the last of the marks (segments, and the rows of their roots) between two forward passes: several
    optimizers may follow each other, or update each parameter within the backward pass."""
    forward = events.phases.start_ns[events.in_phase(schema.FORWARD)]
    if len(marks) and len(forward):
        at = np.searchsorted(forward, events.phases.start_ns[marks])
        last = np.append(np.diff(at) > 0, True)
        return marks[last], roots[last]
    return marks, roots


def _batches(
    events: RankEvents, updated: IntArray, roots: IntArray
) -> tuple[IntArray, IntArray, tuple[tuple[int, int], ...], bool]:
    """Return begin and end of the iterations that end at ``updated``, the times of batches without an update, and
    whether a batch begins the first iteration."""
    trace = events.trace
    code = threads(trace).code
    loads = _outermost_loads(events)
    loads = loads[np.isin(code[loads], code[roots])]
    fetched = trace.ints("start_ns")[loads]
    if len(fetched) >= LEAST and 2 * len(updated) > 3 * len(fetched):  # several updates with each batch
        before = np.searchsorted(fetched, updated)
        updated = updated[np.append(np.diff(before) > 0, True)]
    elif len(fetched) < LEAST:
        updated = _last_of_pattern(events, updated)
    begin = np.append(events.span()[0], updated[:-1])
    first = np.searchsorted(fetched, begin)
    count = np.searchsorted(fetched, updated) - first
    usual = int(np.median(count[1:])) if len(count) > 1 else 0
    if not usual:  # batches are fetched in advance, so that they do not show where an iteration begins
        return begin, updated, (), False
    opened = bool(count[0])
    more = (count > usual) | ((np.arange(len(count)) == 0) & (count > 0))
    own_begin = begin.copy()
    own_begin[more] = fetched[(first + count - np.minimum(count, usual))[more]]
    without = [(int(fetched[at]), int(own)) for at, own, extra in
               zip(first, own_begin, count > usual, strict=True) if extra]  # fmt: skip
    return own_begin, updated, tuple(without), opened


def _last_of_pattern(events: RankEvents, ends: IntArray) -> IntArray:
    """Return every n-th of the ends if the operators between them repeat only after n ends, as when two models are
    trained in turn. Otherwise return all ends."""
    trace, operators = events.trace, events.computing()
    window = np.searchsorted(ends, trace.ints("start_ns")[operators])
    weight = np.random.default_rng(0).integers(1, 1 << 30, len(trace.codes("name").values))
    signature = groupby.sums(
        np.where(window < len(ends), window, -1), len(ends), weight[trace.codes("name").codes[operators]]
    )[1:]
    for each in range(1, _MOST_UPDATES + 1):
        if len(signature) - each < LEAST:
            break
        alike = (signature[each:] == signature[:-each]).mean()
        if alike >= _ALIKE:
            return ends[each - 1 :: each]
        if alike > 1 - _ALIKE:
            break
    return ends


def _outermost_loads(events: RankEvents) -> IntArray:
    trace = events.trace
    loader = trace.rows("kind", schema.DATALOADER)
    return np.flatnonzero(loader & events.of_rank & ~nesting.lies_in(trace.ints("parent"), loader))


def _by_loader(events: RankEvents) -> Periods | None:
    """Return iterations that begin with a call of the data loader and compute something before the next call."""
    trace = events.trace
    loads, computing = _outermost_loads(events), events.computing()
    code = threads(trace).code
    if len(computing):
        loads = loads[code[loads] == np.bincount(code[computing]).argmax()]
    start, work = trace.ints("start_ns"), trace.ints("start_ns")[computing]
    at = np.searchsorted(work, start[loads])
    loads = loads[np.diff(at, prepend=-1) > 0]  # of calls without work between them, the first
    if len(loads) < LEAST:
        return None
    if np.searchsorted(work, start[loads[-1]]) == len(work):  # the loader was exhausted
        begin, end = start[loads[:-1]], start[loads[1:]]
    else:
        begin, end = start[loads], np.append(start[loads[1:]], trace.end_ns[computing].max())
    if len(begin) < LEAST:
        return None
    return Periods(begin, end, np.arange(len(begin)), events.names(loads[:1])[0], int(loads[0]), True)


def _by_backward(events: RankEvents) -> Periods | None:
    passes = events.in_phase(schema.BACKWARD)
    passes, roots = _one_a_pass(events, passes, events.phases.first_root[passes])
    if len(passes) < LEAST:
        return None
    end = _last_of_pattern(events, events.phases.end_ns[passes])
    begin = np.append(events.span()[0], end[:-1])
    return Periods(begin, end, np.arange(len(end)), message("backward passes"), int(roots[0]), False)


def _by_benchmark(events: RankEvents) -> Periods | None:
    """Return the repeats of a benchmark: ranges whose names differ from those of its warm-up in one word."""
    trace, rows = events.trace, events.rows(schema.ANNOTATION)
    names = np.array(events.names(rows), object)
    warm_up = {_WARM_UP.sub("#", name) for name in set(names.tolist()) if _WARM_UP.search(name)}
    for name in dict.fromkeys(names.tolist()):
        measured = rows[names == name]
        if len(measured) > 1 and _MEASURED.search(name) and _MEASURED.sub("#", name) in warm_up:
            before = rows[[_WARM_UP.search(other) is not None for other in names.tolist()]]
            start, end = trace.ints("start_ns"), trace.end_ns
            spans = zip(*(edge.tolist() for edge in intervals.union(start[before], end[before])), strict=True)
            ends = np.append(start[measured[1:]], end[measured[-1]])
            around = measured[:-1][end[measured[:-1]] >= end[measured[1:]]]  # it prepares the repeat that it contains
            inside = zip(
                start[around].tolist(), start[measured[1:]][np.isin(measured[:-1], around)].tolist(), strict=True
            )
            return Periods(start[measured], ends, np.arange(len(measured)), name, int(measured[0]), True, (),
                           (*spans, *inside))  # fmt: skip
    return None


def _by_range(events: RankEvents) -> Periods | None:
    """Return iterations that begin with the range that repeats and covers most of the time, together with the ranges
    that repeat as often."""
    trace, rows = events.trace, _outermost_repeated(events)
    if not len(rows):
        return None
    start, end = trace.ints("start_ns"), trace.end_ns
    labels = np.array(_labels(events, rows), object)
    counts = Counter(labels.tolist())
    first, last = events.span()
    best = 0, ""
    for label, count in counts.items():
        if count >= LEAST:
            covered = intervals.length(intervals.union(start[rows[labels == label]], end[rows[labels == label]]))
            best = max(best, (covered, label), key=lambda pair: pair[0])
    if not best[0]:
        return None
    spent = intervals.covered_ns(one_off_work(trace, events.rank).total(), np.array([first]), start[rows[:1]])[0]
    least = LEAST_COVERED * (last - first - spent)
    together = [best[1]]
    if best[0] < least:  # an iteration consists of several ranges
        together = [label for label, count in counts.items() if abs(count - counts[best[1]]) <= 1]
    marks = rows[labels == min(together, key=lambda label: int(start[rows[labels == label][0]]))]
    siblings = rows[np.isin(labels, together)]
    covered = intervals.length(intervals.union(start[siblings], end[siblings]))
    if covered < least or len(marks) < LEAST:
        return None
    begin = start[marks]
    ends = np.append(begin[1:], max(int(end[siblings[start[siblings] >= begin[-1]]].max()), int(begin[-1])))
    names = events.names(marks)
    return Periods(begin, ends, np.array(step_numbers_of(names)), str(labels[rows == marks[0]][0]), int(marks[0]), True)


def _labels(events: RankEvents, rows: IntArray) -> list[str]:
    """Return the names of ranges without the number at their end. Calls of layers keep the number of the layer."""
    layer = events.trace.rows("kind", schema.FORWARD)[rows].tolist()
    return [name if of else _NUMBER.sub("#", name) for name, of in zip(events.names(rows), layer, strict=True)]


def _outermost_repeated(events: RankEvents) -> IntArray:
    """Return the rows of labelled ranges and calls of the model that occur several times and lie in no such range, nor
    in a pass through a network. Python frames around them do not count."""
    trace = events.trace
    rows = events.rows(schema.ANNOTATION, schema.FORWARD)
    if not len(rows):
        return rows
    names, labels = events.names(rows), _labels(events, rows)
    counts = Counter(labels)
    repeats = np.array([counts[label] > 1 for label in labels], np.bool_)
    part = np.array([_PART_OF_A_PASS.search(name) is not None for name in names], np.bool_)
    once = np.array([_ONE_PASS.search(name) is not None for name in names], np.bool_)
    blocking = np.zeros(len(trace), np.bool_)
    blocking[rows[repeats | once | part]] = True
    blocking |= trace.rows(
        "kind", schema.FORWARD, schema.BACKWARD, schema.OPTIMIZER, schema.DATALOADER, *schema.OPERATOR_KINDS
    )
    outer = ~nesting.lies_in(trace.ints("parent"), blocking)[rows]
    return rows[repeats & ~part & outer]


def _why_none(events: RankEvents) -> Message:
    """Return the reason why no iterations were found."""
    trace, operators = events.trace, events.computing()
    top = operators[~nesting.lies_in(trace.ints("parent"), events.of_rank & trace.rows("kind", *schema.OPERATOR_KINDS))[
        operators]]  # fmt: skip
    marks = events.in_phase(schema.OPTIMIZER)
    marks = marks[~clears_gradients(trace)[events.phases.first_root[marks]]]
    if len(marks):
        return message("the recording has too few updates of parameters ({count}; a step needs {least})",
                       count=len(marks), least=LEAST)  # fmt: skip
    counts = Counter(np.bincount(trace.codes("name").codes[top]).tolist()) if len(top) else Counter[int]()
    repeats = {count: count * number for count, number in counts.items() if count >= LEAST}
    if repeats and max(repeats.values()) > len(top) / 2:
        return message(
            "operators repeat {count} times, but no optimizer, data loader or range marks an iteration, so these may "
            "be the layers of a network",
            count=max(repeats, key=lambda count: repeats[count]),
        )
    labelled = Counter(name for name in events.names(events.rows(schema.ANNOTATION)) if _PART_OF_A_PASS.search(name))
    name, count = max(labelled.items(), key=lambda pair: pair[1], default=("", 0))
    if count > 1:
        return message(
            "ranges repeat only as parts of a pass through a network ({name}), so the recording has no iterations",
            name=name,
        )
    return message("no optimizer, data loader or range repeats, so the recording has no iterations")
