"""Of which family is each event?

A host operator is of the family of its canonical name; where it has none, and for every other host event, of that of
the nearest operator above that has. Device work is of the family that its own name tells, else of that of the operator
that launched it. Some kernels serve many ends: a matrix product that a convolution launches is the convolution, and
a kernel that copies for a cast is the cast.
"""

from __future__ import annotations

import numpy as np

from perfkit_core.algorithms import nesting
from perfkit_core.algorithms.arrays import NO_ROW, BoolArray, Codes, IntArray
from perfkit_core.model.schema import DEVICE_WORK, KERNEL, MEMCPY, MEMSET
from perfkit_core.model.trace import Trace, once
from perfkit_core.operators.names import FAMILIES, family, kernel_family
from perfkit_core.views import attribution

_NUMBER = {name: number for number, name in enumerate(FAMILIES)}
_OF_KIND = {MEMCPY: "copy", MEMSET: "creation"}
_SERVES = {
    "matmul": ("conv", "attention", "rnn", "mixture_of_experts", "linear_algebra"),
    "elementwise": ("activation", "dropout", "loss"),
}
"""Family of a kernel → families of operators that such kernels compute: there the operator's says more."""


@once
def event_families(trace: Trace) -> Codes:
    """The family of each event, shape (rows,): codes into all families, -1 where there is none."""
    found = _of_host(trace)
    device = np.flatnonzero(trace.rows("kind", *DEVICE_WORK))
    own, owner = _of_device(trace)[device], attribution.owners(trace)[device]
    inherited = np.where(owner == NO_ROW, -1, found[owner])
    found[device] = np.where((own >= 0) & ~_serving()[own, inherited], own, inherited)
    found[_copying_for_casts(trace, found)] = _NUMBER["cast"]
    return Codes(found.astype(np.int32), list(FAMILIES))


def _copying_for_casts(trace: Trace, families: IntArray) -> BoolArray:
    """Kernels that copy, launched by an operator that copies directly in one that casts. Copies of the device's own
    engines stay: they move data between places."""
    parent, names = trace.ints("parent"), trace.codes("op_name").codes
    above = nesting.nearest_above(parent, names >= 0)
    nearest = np.append(nesting.nearest_on_path(parent, names >= 0), NO_ROW)[attribution.owners(trace)]
    outer = np.append(above, NO_ROW)[nearest]
    cast = np.append(families, -1)[outer] == _NUMBER["cast"]
    found: BoolArray = trace.rows("kind", KERNEL) & (families == _NUMBER["copy"]) & cast
    return found


def _serving() -> BoolArray:
    """True where the operator's family comes before the kernel's: [family of the kernel, family of the operator]."""
    found = np.zeros((len(FAMILIES) + 1, len(FAMILIES) + 1), np.bool_)
    for of_kernel, of_operators in _SERVES.items():
        found[_NUMBER[of_kernel], [_NUMBER[name] for name in of_operators]] = True
    return found


def _of_host(trace: Trace) -> IntArray:
    """By canonical name, else by that of the nearest event above that has one, shape (rows,)."""
    names = trace.codes("op_name")
    numbers = np.array([_number(family(name)) for name in names.values], np.int64)
    own = names.lookup(numbers, -1)
    nearest = nesting.nearest_on_path(trace.ints("parent"), own >= 0)
    found: IntArray = np.where(nearest == NO_ROW, -1, own[nearest])
    return found


def _of_device(trace: Trace) -> IntArray:
    """By the name of a kernel, and by the kind of a copy or a fill, shape (rows,)."""
    kinds = trace.codes("kind")
    by_kind = kinds.lookup(np.array([_number(_OF_KIND.get(kind)) for kind in kinds.values], np.int64), -1)
    found: IntArray = np.where(by_kind >= 0, by_kind, _by_kernel_name(trace))
    return found


@once
def _by_kernel_name(trace: Trace) -> IntArray:
    """The family that the names of kernels tell, -1 for all other rows; each distinct name is looked at once."""
    names = trace.codes("name")
    kernels = ~trace.host & trace.rows("kind", KERNEL)
    numbers = np.full(len(names.values), -1, np.int64)
    for code in np.unique(names.codes[kernels]):
        numbers[code] = _number(kernel_family(names.values[code]))
    found: IntArray = np.where(kernels, names.lookup(numbers, -1), -1)
    return found


def _number(name: str | None) -> int:
    return -1 if name is None else _NUMBER[name]
