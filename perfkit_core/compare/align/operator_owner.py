"""The operators that a comparison counts.

An event belongs to the outermost operator around it that has a canonical name. If there is none, the event belongs to
the outermost operator of any name.

- Operators that only run other operators (a branch, a compiled region) count as operators without a canonical name.
- Device work belongs to the operator that launched it.
- Between frameworks, some operators are parts of another one (:mod:`~perfkit_core.compare.align.composites`).
- Operators of the optimizer phase count as ``optimizer_update``, because frameworks divide the update differently.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import pandas as pd

from perfkit_core.base.algorithms import nesting
from perfkit_core.base.algorithms.arrays import NO_ROW, BoolArray, Codes, IntArray
from perfkit_core.base.operators.names import family, is_container
from perfkit_core.trace.model.cache import once
from perfkit_core.trace.model.schema import OPTIMIZER
from perfkit_core.trace.model.trace import Trace
from perfkit_core.views import attribution
from perfkit_core.views.operators.families import event_families

OPTIMIZER_UPDATE: Final = "optimizer_update"
Composites = dict[int, tuple[str, IntArray]]
"""Row of the operator that stands for a composite → the name of the composite, and the rows of its parts."""


@dataclass(frozen=True, slots=True)
class Owners:
    """The operator to which each event belongs. All fields have the shape (rows,)."""

    row: IntArray  # The row of the operator, -1 if there is none.
    name: Codes  # The canonical name of the operator, else its native name, null if there is no operator.
    family: Codes  # The family of the operator, else the family of the event.
    named: BoolArray  # Whether the name is canonical.

    @property
    def counted(self) -> BoolArray:
        """Mask of the operators that a comparison counts. It has the shape (rows,)."""
        mask: BoolArray = self.row == np.arange(len(self.row))
        return mask


@once
def owners(trace: Trace) -> Owners:
    parent, operator, canonical = trace.ints("parent"), trace.operators, trace.codes("op_name")
    in_optimizer = trace.rows("phase", OPTIMIZER)
    computing = canonical.lookup(np.array([not is_container(name) for name in canonical.values], np.bool_), False)
    named = nesting.outermost(parent, operator & (computing | in_optimizer))
    row = np.where(named != NO_ROW, named, nesting.outermost(parent, operator))
    launched_by = trace.ints("launched_by")
    launched = launched_by != NO_ROW
    row[launched] = row[launched_by[launched]]

    native = trace.codes("name")
    code, names = pd.factorize(np.array([OPTIMIZER_UPDATE, *canonical.values, *native.values], object))
    number = np.where(canonical.codes >= 0, 1 + canonical.codes, 1 + len(canonical.values) + native.codes)
    number = code[np.where(in_optimizer, 0, number)]
    name = Codes(np.where(row >= 0, number[row], -1).astype(np.int32), list(names))

    return _with_families(trace, row, name, in_optimizer | (canonical.codes >= 0))


def merged(trace: Trace, composites: Composites, synonyms: Mapping[str, str]) -> Owners:
    """Return the operators of which some are parts of ``composites``, and some have synonyms: name → canonical name."""
    plain, head = owners(trace), np.arange(len(trace))
    number, names = plain.name.codes.copy(), [synonyms.get(name, name) for name in plain.name.values]
    for composite, (text, parts) in composites.items():
        head[parts], number[composite] = composite, len(names)
        names.append(text)
    row = np.where(plain.row >= 0, head[plain.row], NO_ROW)
    code, values = pd.factorize(np.array(names, object))
    name = Codes(np.where(row >= 0, code[number[row]], -1).astype(np.int32), list(values))
    return _with_families(trace, row, name, plain.named)


def _with_families(trace: Trace, row: IntArray, name: Codes, named: BoolArray) -> Owners:
    of_event = event_families(trace)
    families = [family(value) for value in name.values]
    values = list(dict.fromkeys([*(value for value in families if value is not None), *of_event.values]))
    position = {value: index for index, value in enumerate(values)}
    by_name = name.lookup(np.array([position.get(value or "", -1) for value in families], np.int32), np.int32(-1))
    by_event = of_event.lookup(np.array([position[value] for value in of_event.values], np.int32), np.int32(-1))
    families_of = Codes(np.where(by_name >= 0, by_name, by_event).astype(np.int32), values)
    return Owners(row, name, families_of, named)


def owner_times(trace: Trace, operators: Owners) -> tuple[IntArray, IntArray]:
    """Return the host time and the device time, each as an array of shape (rows,). Only the rows of counted operators
    (:attr:`Owners.counted`) are meaningful. The time of a counted operator excludes the counted operators inside it."""
    counted, parent = owners(trace).counted, trace.ints("parent")
    cpu, device = trace.ints("dur_ns").copy(), attribution.total_device_ns(trace).copy()
    holder = nesting.nearest_above(parent, counted)
    inner = np.flatnonzero(counted & (holder != NO_ROW))
    parts = np.flatnonzero(counted & ~operators.counted)
    for values in (cpu, device):
        np.subtract.at(values, holder[inner], values[inner].copy())
        np.add.at(values, operators.row[parts], values[parts])
    return cpu, device
