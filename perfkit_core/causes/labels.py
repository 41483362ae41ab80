"""The texts of the causes in the account, and which event counts as a call of a cause."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

import numpy as np

from perfkit_core.base.algorithms import nesting
from perfkit_core.base.algorithms.arrays import NO_ROW, BoolArray, IntArray
from perfkit_core.base.language.messages import mark
from perfkit_core.causes.host_work import HOST_WORK, UNRECORDED, host_work
from perfkit_core.causes.segments import COMMUNICATION, COMPUTE, COPY, HOST, IN_FLIGHT, UNLAUNCHED, WORDS, Segments
from perfkit_core.trace.model import schema
from perfkit_core.trace.model.trace import Trace
from perfkit_core.views import attribution
from perfkit_core.views.communication.instances import communication, descriptions
from perfkit_core.views.communication.stragglers import awaited
from perfkit_core.views.grouping import called
from perfkit_core.views.operators.calls import operator_names, operator_rows, outermost
from perfkit_core.views.operators.operator_work import recomputed
from perfkit_core.views.tables import texts

WAIT_FOR: Final = "waiting for rank {rank}"
EARLIER: Final = mark("work from before the recording")
OTHER_STEPS: Final = mark("work that was launched before these steps")
RECOMPUTED: Final = mark("forward pass computed again")
LAYOUT: Final = mark("conversions of memory layout")
CONVERTS: Final = re.compile(
    r"nchw_?to_?nhwc|nhwc_?to_?nchw|batched_transpose|transpose_?\w*kernel|trans_?layout|tilingswapdim|swapdim", re.I
)
"""Names of kernels that only change the memory layout of tensors."""
_FILL: Final = "fill"
_COPY: Final = "copy of unknown direction"


class Labels:
    """Codes of texts for the events of a trace. ``texts`` are the texts of the codes."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self.texts: list[str] = []
        self._position: dict[str, int] = {}

    def device(self, code: int) -> str:
        return self._trace.codes("device").values[code] if code >= 0 else schema.CPU

    def _codes(self, values: list[str]) -> IntArray:
        """Return the code of each text. New texts are added. An event with the name of a word is marked as an event,
        because texts show phrases for words."""
        values = [f"{value} (event)" if value in WORDS else value for value in values]
        for value in values:
            if value not in self._position:
                self._position[value] = len(self.texts)
                self.texts.append(value)
        return np.array([self._position[value] for value in values] or [0], np.int64)

    def of(
        self,
        segments: Segments,
        earlier: IntArray | None = None,
        outside: Mapping[str, BoolArray] = MappingProxyType({}),
    ) -> tuple[IntArray, IntArray, IntArray, IntArray]:
        """Return for each segment the codes of its cause and of the part of the cause, the row that counts as a call,
        and the row of the host event in which the cause lies; -1 for none. Shape (segments,). ``earlier`` has the calls
        that wait for work from before the recording. ``outside`` has names of work that is no cause of the steps, with
        the segments in which it runs; its parts are the operators."""
        trace, word, event = self._trace, segments.word, segments.event
        cause, part, call = (np.full(len(word), NO_ROW) for _ in range(3))
        on_host = (event != NO_ROW) & trace.host[event]
        row = np.where(on_host | (event == NO_ROW), event, trace.ints("launched_by")[event])

        def at(name: str) -> BoolArray:
            mask: BoolArray = word == WORDS.index(name)
            return mask

        names = trace.codes("name").codes[event]
        busy = at(COMPUTE)
        operator = self._operator[event]
        alone = operator == NO_ROW
        of_operator = self._operators[operator_names(trace).codes[operator]]
        of_kernel = self._kernels[names]
        cause[busy] = np.where(alone, of_kernel, of_operator)[busy]
        unnamed = on_host | (alone & (of_kernel == self._names[names]))
        part[busy] = np.where(unnamed, NO_ROW, self._names[names])[busy]
        call[busy] = np.where(alone, event, operator)[busy]
        again = busy & ~alone & recomputed(trace)[operator]
        if again.any():
            part[again], cause[again] = cause[again], self._codes([RECOMPUTED])[0]
        talks = at(COMMUNICATION)
        cause[talks], call[talks] = self._collectives[event[talks]], self._collective[event[talks]]
        waits = awaited(trace)
        waiting = talks & (waits.rank[event] != NO_ROW)
        waiting &= (waits.start_ns[event] <= segments.start) & (segments.end <= waits.end_ns[event])
        others, at_other = np.unique(waits.rank[event[waiting]], return_inverse=True)
        part[waiting] = self._codes([WAIT_FOR.format(rank=other) for other in others.tolist()])[at_other]
        copies = at(COPY)
        cause[copies], call[copies] = self._copies[event[copies]], event[copies]
        part[copies] = np.where(alone, NO_ROW, of_operator)[copies]
        for name, runs in outside.items():
            if runs.any():
                part[runs] = np.where(busy, cause, NO_ROW)[runs]
                cause[runs] = self._codes([name])[0]
        held = at(HOST)
        recorded = held & (event != NO_ROW) & ~trace.rows("kind", schema.STEP)[event]
        work = np.where(event == NO_ROW, HOST_WORK.index(UNRECORDED), host_work(trace)[event])
        cause[held], call[held] = self._work[work[held]], event[held]
        part[recorded] = self._names[names[recorded]]
        unlaunched = at(UNLAUNCHED)
        cause[unlaunched], call[unlaunched] = self._names[names[unlaunched]], event[unlaunched]
        waiting = at(IN_FLIGHT) & (row != NO_ROW)
        cause[waiting], call[waiting] = self._names[trace.codes("name").codes[row[waiting]]], event[waiting]
        if earlier is not None and (waits_for_earlier := earlier != NO_ROW).any():
            row = np.where(waits_for_earlier, earlier, row)
            cause[waits_for_earlier], call[waits_for_earlier] = self._codes([EARLIER])[0], earlier[waits_for_earlier]
            part[waits_for_earlier] = self._names[trace.codes("name").codes[earlier[waits_for_earlier]]]
        return cause, part, call, row

    def waits(self, row: IntArray) -> IntArray:
        """Return the code of the name of each wait, or of the outermost operator around it; -1 for none."""
        around = outermost(self._trace)[row]
        wait = np.where(around == NO_ROW, row, around)
        return np.where(row == NO_ROW, NO_ROW, self._names[self._trace.codes("name").codes[wait]])

    @functools.cached_property
    def _operator(self) -> IntArray:
        """The operator that each event belongs to: the innermost one around a host event or the launch."""
        trace = self._trace
        around = nesting.nearest_on_path(trace.ints("parent"), trace.operators)
        return np.where(trace.host, around, operator_rows(trace))

    @functools.cached_property
    def _names(self) -> IntArray:
        """The text of each name: kernels without their parameters, methods without addresses."""
        short = attribution.short_kernel_names(texts(self._trace.codes("name"), np.empty(0, np.int64)))
        return self._codes([called(str(name)) for name in short.categories])

    @functools.cached_property
    def _kernels(self) -> IntArray:
        """The text of each name for kernels without an operator: that of their kind if the name says it."""
        converts = [CONVERTS.search(name) is not None for name in self._trace.codes("name").values]
        return np.where(converts, self._codes([LAYOUT])[0], self._names) if any(converts) else self._names

    @functools.cached_property
    def _operators(self) -> IntArray:
        return self._codes(operator_names(self._trace).values)

    @functools.cached_property
    def _work(self) -> IntArray:
        return self._codes(list(HOST_WORK))

    @functools.cached_property
    def _copies(self) -> IntArray:
        """The code of the direction of each copy, shape (rows,)."""
        kinds = self._trace.codes("copy_kind")
        directions = np.append(self._codes([*kinds.values, _COPY])[np.append(kinds.codes, -1)][:-1], 0)[:-1]
        return np.where(self._trace.rows("kind", schema.MEMSET), self._codes([_FILL])[0], directions)

    @functools.cached_property
    def _collective(self) -> IntArray:
        """The row of the host call of each event that communicates, or else the event itself, shape (rows,)."""
        call = communication(self._trace).call
        return np.where(call == NO_ROW, np.arange(len(call)), call)

    @functools.cached_property
    def _collectives(self) -> IntArray:
        """The code of the collective of each event that communicates, shape (rows,)."""
        trace, about = self._trace, descriptions(self._trace)
        names = self._names[trace.codes("name").codes]
        result = np.where(communication(trace).call == NO_ROW, names, self._operators[
            operator_names(trace).codes[self._collective]])  # fmt: skip
        named = about[about["name"].notna()]
        rows = named.index.to_numpy(np.int64)
        if len(rows):
            result[rows] = self._codes(named["name"].tolist())
        return result
